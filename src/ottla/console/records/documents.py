"""A record as a document of the API. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ottla.cli.formats import Incoming
from ottla.console.records import internal
from ottla.console.records.datum import DATUM, FORMATS, Decoder, datum
from ottla.console.records.masks import Masks
from ottla.console.schema import BOOLEAN, INTEGER, STRING, Schema, document, listed, maybe

RECORD: Schema = document(
    topic=STRING,
    partition=INTEGER,
    offset=INTEGER,
    timestamp=maybe(INTEGER),
    timestamp_type=STRING,
    key=DATUM,
    value=DATUM,
    headers=listed(document(name=STRING, value=DATUM)),
    size=INTEGER,
    masked_=BOOLEAN,
)
FORMAT_WORDS = ("auto", *FORMATS)


@dataclass(frozen=True, slots=True)
class Showing:
    """How records are shown."""

    masks: Masks = field(default_factory=lambda: Masks(()))
    key_format: str = "auto"
    value_format: str = "auto"
    special: tuple[tuple[str, Decoder], ...] = ()
    """Formats of keys and values to try first."""
    whole: bool = False
    """Without limit, and with the bytes."""

    def document(self, record: Incoming) -> dict[str, Any]:
        """Of a record that is not masked yet."""
        masked = self.masks.masked(record)
        found: dict[str, Any] = {
            "topic": masked.topic,
            "partition": masked.partition,
            "offset": masked.offset,
            "timestamp": masked.timestamp_ms,
            "timestamp_type": masked.timestamp_type,
            **self._fields(masked),
            "headers": [{"name": name, "value": datum(value, whole=self.whole)} for name, value in masked.headers],
            "size": len(record.key or b"") + len(record.value or b""),
        }
        return found if masked is record else {**found, "masked": True}

    def _fields(self, record: Incoming) -> dict[str, Any]:
        known = internal.decoded(record.topic, record.key, record.value) if self.value_format == "auto" else None
        key_special, value_special = ((known[0],), (known[1],)) if known is not None else (self.special, self.special)
        return {
            "key": datum(record.key, self.key_format, key_special, whole=self.whole),
            "value": datum(record.value, self.value_format, value_special, whole=self.whole),
        }
