"""Kafka clients, in three groups.

Producing and consuming: `Producer` and `Consumer` are confluent-kafka's with interceptors, `AsyncProducer` and `AsyncConsumer`
the same for asyncio, `EndToEndLatency` is a ready interceptor. They are imported, with confluent-kafka, on first use.

Between brokers, tools and tests: `pipeline` matches requests and responses without I/O, `connection` puts it on a socket of the
event loop; `brokers` opens one to each broker of a cluster when it is needed.

Without an event loop, in Spark's workers: `blocking` finds leaders and coordinators and retries, over a `channel` to each broker;
`offsets` and `transactions` are requests through it; `options` are its settings by Java's names.

Security, for both: `security` has the options, `tls` makes a context of them with `ottla.tls`; `login` is the SASL dialogue,
with the mechanisms in `scram`, `oauth` (tokens) and `kerberos`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ottla.client.async_consumer import AsyncConsumer
    from ottla.client.async_producer import AsyncProducer
    from ottla.client.consumer import Consumer
    from ottla.client.interceptors import Interceptor, ProducerRecord, RecordMetadata
    from ottla.client.latency import EndToEndLatency
    from ottla.client.producer import Producer

__all__ = [
    "AsyncConsumer",
    "AsyncProducer",
    "Consumer",
    "EndToEndLatency",
    "Interceptor",
    "Producer",
    "ProducerRecord",
    "RecordMetadata",
]

# The broker imports this package for `connection` and must not load confluent-kafka.
_HOMES = {
    "AsyncConsumer": "async_consumer",
    "AsyncProducer": "async_producer",
    "Consumer": "consumer",
    "EndToEndLatency": "latency",
    "Interceptor": "interceptors",
    "Producer": "producer",
    "ProducerRecord": "interceptors",
    "RecordMetadata": "interceptors",
}


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    found = getattr(import_module(f"{__name__}.{home}"), name)
    globals()[name] = found
    return found
