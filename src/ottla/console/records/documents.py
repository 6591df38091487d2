"""A record as a document of the API.

A key or value that names a schema of the registry is read as JSON text before it is masked, selected or shown.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ottla.cli.failure import Failure
from ottla.cli.formats import Incoming
from ottla.console.records import internal
from ottla.console.records.datum import DATUM, FORMATS, Decoder, DoesNotFit, Shown, datum
from ottla.console.records.masks import Masks
from ottla.console.records.schemas import SCHEMA_FORMATS, Reading, Schemas
from ottla.console.schema import BOOLEAN, INTEGER, STRING, Schema, document, listed, maybe
from ottla.records.record import Headers
from ottla.schemas.framing import NotFramed, names_schema, read_id, whole
from ottla.schemas.model import AVRO

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
FORMAT_WORDS = ("auto", *FORMATS, *SCHEMA_FORMATS)
_DECODED = ("auto", *SCHEMA_FORMATS)
_Special = tuple[str, Decoder]


@dataclass(frozen=True, slots=True)
class Seen:
    """A record as a user may see it: read with its schemas, and without what is hidden."""

    record: Incoming
    masked: bool
    """Whether something is hidden."""
    key_masked: bool
    """Whether it is something of the key."""
    key: Reading | None = None
    value: Reading | None = None


@dataclass(frozen=True, slots=True)
class Showing:
    """How records are read and shown."""

    masks: Masks = field(default_factory=lambda: Masks(()))
    key_format: str = "auto"
    value_format: str = "auto"
    schemas: Schemas | None = None
    whole: bool = False
    """Without limit, and with the bytes."""

    # What selections look at

    @property
    def decodes(self) -> bool:
        """Whether anything may be read with a schema."""
        return self.schemas is not None and (self.key_format in _DECODED or self.value_format in _DECODED)

    def concerns(self, topic: str, key: bytes | None, value: bytes | None, headers: Headers) -> bool:
        """Whether a key or value may name a schema with which it is read."""
        if self.schemas is None or topic in internal.TOPICS:
            return False
        of_key = self.key_format in _DECODED and names_schema(whole(key, headers, key=True))
        return of_key or (self.value_format in _DECODED and names_schema(whole(value, headers, key=False)))

    def read(self, record: Incoming) -> Incoming:
        """With the text of what names a schema. Failure if no registry answers: what cannot be read cannot be searched."""
        readings = (self._reading(record, "key"), self._reading(record, "value"))
        for reading in readings:
            if reading is not None and reading.away:
                raise Failure(reading.why, "records with schemas can be searched when it answers", code="REGISTRY_AWAY")
        return _with_texts(record, *readings)

    def seen(self, record: Incoming) -> Seen:
        key, value = self._reading(record, "key"), self._reading(record, "value")
        read = _with_texts(record, key, value)
        unions = [part for part, reading in (("key", key), ("value", value)) if _is_avro(reading)]
        masked = self.masks.masked(read, unions)
        return Seen(masked, masked is not read, masked.key != read.key, key, value)

    def _reading(self, record: Incoming, part: str) -> Reading | None:
        """None if the part names no schema, or is asked for in another format."""
        wanted, given = (self.key_format, record.key) if part == "key" else (self.value_format, record.value)
        data = whole(given, record.headers, key=part == "key")
        if self.schemas is None or data is None or wanted not in _DECODED or record.topic in internal.TOPICS:
            return None
        reading = self.schemas.read(data)
        if reading is not None and reading.text is not None and wanted not in ("auto", reading.format):
            return replace(reading, format=wanted, text=None, why=f"schema {reading.schema_id} is {reading.schema_type}")
        return reading

    # Documents

    def document(self, record: Incoming) -> dict[str, Any]:
        """The document of a record as it came."""
        seen = self.seen(record)
        shown = seen.record
        found: dict[str, Any] = {
            "topic": shown.topic,
            "partition": shown.partition,
            "offset": shown.offset,
            "timestamp": shown.timestamp_ms,
            "timestamp_type": shown.timestamp_type,
            **self._fields(record, seen),
            "headers": [{"name": name, "value": datum(value, whole=self.whole)} for name, value in shown.headers],
            "size": len(record.key or b"") + len(record.value or b""),
        }
        return {**found, "masked": True} if seen.masked else found

    def _fields(self, record: Incoming, seen: Seen) -> dict[str, Any]:
        shown = seen.record
        known = internal.decoded(shown.topic, shown.key, shown.value) if self.value_format == "auto" else None
        if known is not None:
            return {
                "key": datum(shown.key, self.key_format, known[:1], whole=self.whole),
                "value": datum(shown.value, self.value_format, known[1:], whole=self.whole),
            }
        return {
            "key": self._part(record, "key", self.key_format, record.key, shown.key, seen.key),
            "value": self._part(record, "value", self.value_format, record.value, shown.value, seen.value),
        }

    def _part(
        self, record: Incoming, part: str, wanted: str, data: bytes | None, shown: bytes | None, reading: Reading | None
    ) -> dict[str, Any] | None:
        if data is None or shown is None:
            return datum(data, wanted, whole=self.whole)
        if reading is None or reading.text is None:
            return datum(shown, wanted, self._why(wanted, data, reading), whole=self.whole)
        assert self.schemas is not None
        text, schema = shown.decode("utf-8", "surrogatepass"), self.schemas.document(reading, record.topic, part)
        special = ((reading.format, lambda _: Shown(text, schema)),)
        # The bytes would tell what is hidden.
        hidden = text != reading.text
        return datum(shown if hidden else data, wanted, special, whole=self.whole)

    def _why(self, wanted: str, data: bytes, reading: Reading | None) -> Sequence[_Special]:
        """Why bytes are not read with a schema, where that is to be told."""
        if reading is not None:
            return ((reading.format, _failing(reading.why)),)
        if wanted not in SCHEMA_FORMATS:
            return ()
        if self.schemas is None:
            return ((wanted, _failing("this console has no schema registry")),)
        try:
            read_id(data)
        except NotFramed as error:
            return ((wanted, _failing(str(error))),)
        return ((wanted, _failing("brokers write this topic")),)


def _with_texts(record: Incoming, key: Reading | None, value: Reading | None) -> Incoming:
    texts: dict[str, Any] = {
        part: reading.text.encode("utf-8", "surrogatepass")
        for part, reading in (("key", key), ("value", value))
        if reading is not None and reading.text is not None
    }
    return replace(record, **texts) if texts else record


def _is_avro(reading: Reading | None) -> bool:
    return reading is not None and reading.schema_type == AVRO


def _failing(why: str) -> Decoder:
    def fail(data: bytes) -> Shown:
        raise DoesNotFit(why)

    return fail
