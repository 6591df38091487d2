"""Names in a `server.properties` that Apache Kafka's brokers ignore, and that files of real brokers have.

1. Ignoring one never makes a broker less protected than its owner believes: nothing about TLS or logins is here, but for what
   Confluent's images write beside the setting that counts.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

_OF_CLIENTS: Final = frozenset((
    "acks", "allow.auto.create.topics", "auto.commit.interval.ms", "auto.offset.reset", "batch.size", "bootstrap.controllers",
    "bootstrap.servers", "buffer.memory", "check.crcs", "client.dns.lookup", "client.id", "client.rack",
    "default.api.timeout.ms", "delivery.timeout.ms", "enable.auto.commit", "enable.idempotence", "enable.metrics.push",
    "exclude.internal.topics", "fetch.max.wait.ms", "fetch.min.bytes", "group.id", "group.instance.id", "group.protocol",
    "group.remote.assignor", "heartbeat.interval.ms", "interceptor.classes", "isolation.level", "key.deserializer",
    "key.serializer", "linger.ms", "max.block.ms", "max.in.flight.requests.per.connection", "max.partition.fetch.bytes",
    "max.poll.interval.ms", "max.poll.records", "max.request.size", "metadata.max.age.ms", "metadata.max.idle.ms",
    "metadata.recovery.rebootstrap.trigger.ms", "metadata.recovery.strategy", "partition.assignment.strategy",
    "partitioner.adaptive.partitioning.enable", "partitioner.availability.timeout.ms", "partitioner.class",
    "partitioner.ignore.keys", "receive.buffer.bytes", "reconnect.backoff.max.ms", "reconnect.backoff.ms", "retries",
    "retry.backoff.max.ms", "retry.backoff.ms", "send.buffer.bytes", "session.timeout.ms", "share.acknowledgement.mode",
    "share.acquire.mode", "transaction.timeout.ms", "transactional.id", "value.deserializer", "value.serializer",
))  # fmt: skip
_OF_IMAGES: Final = {
    "ssl.keystore.filename": "ssl.keystore.location",
    "ssl.keystore.credentials": "ssl.keystore.password",
    "ssl.key.credentials": "ssl.key.password",
    "ssl.truststore.filename": "ssl.truststore.location",
    "ssl.truststore.credentials": "ssl.truststore.password",
}
"""Variables of Confluent's images, and the settings that their start script makes of them."""
_OF_THE_PROCESS: Final = ("jmx.hostname", "jmx.port")


def why_ignored(name: str, given: Mapping[str, str]) -> str | None:
    """Why this unknown name has no effect; None if it may be a mistake. `given`: all settings of the broker."""
    if name in _OF_CLIENTS:
        return "it is a setting of clients"
    if name in _OF_THE_PROCESS:
        return "it is a variable of the Java process"
    if name.startswith("kafka.rest."):
        return "it is a setting of Confluent's REST server"
    counts = _OF_IMAGES.get(name)
    if counts is not None and counts in given:
        return f"{counts} counts"
    return None
