"""Clients.

For producing and consuming: confluent-kafka's clients with interceptors (`Producer`, `Consumer`), the same for asyncio
(`AsyncProducer`, `AsyncConsumer`), and a ready interceptor (`EndToEndLatency`). They are found here by name and loaded, with
confluent-kafka, when a name is first used.

For what brokers, tools and tests say to each other: a small Kafka client of our own; `pipeline` is sans-IO, `connection` puts it
on a socket of the event loop.

For Spark's workers, where there is no loop: `blocking` finds leaders and coordinators, and tries again; `offsets` and
`transactions` are what is asked through it. `options` are its settings by Java's names, `stores` and `scram` what security needs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ottla.client.aio import AsyncConsumer, AsyncProducer
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

# The broker imports this package for `connection`: neither the library nor the wrappers may cost it anything.
_HOMES = {
    "AsyncConsumer": "aio",
    "AsyncProducer": "aio",
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
