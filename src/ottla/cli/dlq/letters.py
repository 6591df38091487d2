"""A dead letter: a record that a consumer could not process, with headers that say where it came from and why. Pure.

Three dialects of these headers are known: that of pipelines (`pipelines.dead_letters`), Kafka Connect's, and Spring Kafka's,
which writes numbers in binary. The last header of a name counts: a record that fails again gets a second set.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from ottla.cli.formats import Headers, Incoming, to_json
from ottla.cli.positions import DIGITS_MAX

NAME_ENDINGS = (".dlq", "-dlq", "_dlq", ".dlt", "-dlt", "_dlt", ".dead-letter", ".dead-letters", ".deadletter")
"""How names of dead-letter topics end, in any case."""


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")


def _decimal(data: bytes) -> int | None:
    return int(data) if data.isdigit() and len(data) <= DIGITS_MAX else None


def _binary(data: bytes) -> int | None:
    found = int.from_bytes(data, "big", signed=True) if len(data) in (4, 8) else -1
    return found if found >= 0 else None


@dataclass(frozen=True, slots=True)
class Dialect:
    topic: str
    partition: str
    offset: str
    flow: str
    reasons: tuple[str, ...]
    """The first of these that is there."""
    number: Callable[[bytes], int | None]
    prefix: str | None = None
    """All headers that begin so are of the dialect."""
    others: tuple[str, ...] = ()

    def owns(self, name: str) -> bool:
        if self.prefix is not None:
            return name.startswith(self.prefix)
        return name in (self.topic, self.partition, self.offset, self.flow, *self.reasons, *self.others)


_CLUSTER = "ottla.cluster"
PIPELINES = Dialect(
    "ottla.topic",
    "ottla.partition",
    "ottla.offset",
    "ottla.flow",
    ("ottla.reason",),
    _decimal,
    others=("ottla.expectation", _CLUSTER),
)
CONNECT = Dialect(
    "__connect.errors.topic",
    "__connect.errors.partition",
    "__connect.errors.offset",
    "__connect.errors.connector.name",
    ("__connect.errors.exception.message", "__connect.errors.exception.class.name"),
    _decimal,
    "__connect.errors.",
)
SPRING = Dialect(
    "kafka_dlt-original-topic",
    "kafka_dlt-original-partition",
    "kafka_dlt-original-offset",
    "kafka_dlt-original-consumer-group",
    ("kafka_dlt-exception-message", "kafka_dlt-exception-fqcn"),
    _binary,
    "kafka_dlt-",
)
_DIALECTS = (PIPELINES, CONNECT, SPRING)


@dataclass(frozen=True, slots=True)
class Letter:
    record: Incoming
    source_topic: str | None
    source_partition: int | None
    source_offset: int | None
    flow: str | None
    """The flow, connector or group that failed."""
    reason: str | None
    headers: Headers
    """Those of the original record."""
    cluster: str | None = None
    """The cluster of the original record, by its name in the pipeline. None: this one, or it is not known."""

    @property
    def own_topic(self) -> str | None:
        """The topic in this cluster that the record came from."""
        return None if self.cluster is not None else self.source_topic

    @property
    def place(self) -> str:
        return f"{self.record.topic}-{self.record.partition}@{self.record.offset}"

    @property
    def source(self) -> str | None:
        """`orders-0@12`, as far as it is known; `east:orders-0@12` of another cluster."""
        if self.source_topic is None:
            return None
        partition = "" if self.source_partition is None else f"-{self.source_partition}"
        cluster = "" if self.cluster is None else f"{self.cluster}:"
        return f"{cluster}{self.source_topic}{partition}{'' if self.source_offset is None else f'@{self.source_offset}'}"

    @property
    def source_document(self) -> dict[str, Any]:
        return {
            "cluster": self.cluster,
            "topic": self.source_topic,
            "partition": self.source_partition,
            "offset": self.source_offset,
        }

    def document(self) -> dict[str, Any]:
        return {
            "reason": self.reason,
            "flow": self.flow,
            "source": self.source_document,
            **to_json(replace(self.record, headers=self.headers)),
        }


def read_letter(record: Incoming) -> Letter:
    present: Mapping[str, bytes] = {name: value for name, value in record.headers if value is not None}
    # A pipeline's row that comes of no single record has no topic.
    dialect = next((each for each in _DIALECTS if each.topic in present or each.flow in present), None)
    if dialect is None:
        return Letter(record, None, None, None, None, None, record.headers)

    def number(name: str) -> int | None:
        return dialect.number(present[name]) if name in present else None

    flow = present.get(dialect.flow)
    reason = next((present[name] for name in dialect.reasons if name in present), None)
    return Letter(
        record,
        _text(present[dialect.topic]) if dialect.topic in present else None,
        number(dialect.partition),
        number(dialect.offset),
        None if flow is None else _text(flow),
        None if reason is None else _text(reason),
        [(name, value) for name, value in record.headers if not dialect.owns(name)],
        _text(present[_CLUSTER]) if dialect is PIPELINES and _CLUSTER in present else None,
    )


def is_dead_letter_name(topic: str) -> bool:
    return topic.lower().endswith(NAME_ENDINGS)
