"""Records as lines, in both directions. Pure functions over bytes.

Formats: `text` (plain bytes, one record per line, optionally `key<separator>value`), `hex`, `base64`, and `json` (one object per
line with all parts of a record). `json` round-trips: a key or value that is not UTF-8 is in `key_base64` or `value_base64`.
"""

from __future__ import annotations

import base64
import binascii
import json
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

from ottla.cli.failure import EXIT_USAGE, Failure, is_text
from ottla.filters.times import TIME_MS_MAX, iso_time_ms

Headers = list[tuple[str, bytes | None]]


class Format(StrEnum):
    TEXT = "text"
    JSON = "json"
    HEX = "hex"
    BASE64 = "base64"


@dataclass(slots=True)
class Outgoing:
    """A record to produce. The client chooses the partition and timestamp that are None."""

    key: bytes | None
    value: bytes | None
    headers: Headers = field(default_factory=list)
    partition: int | None = None
    timestamp_ms: int | None = None


@dataclass(slots=True)
class Incoming:
    """A consumed record."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int | None
    timestamp_type: str
    key: bytes | None
    value: bytes | None
    headers: Headers


@dataclass(frozen=True, slots=True)
class Reading:
    """How lines become records."""

    format: Format = Format.TEXT
    key_format: Format = Format.TEXT
    key_separator: str | None = None
    null: str | None = None

    def record(self, line: bytes, number: int) -> Outgoing:
        """The record of a line without its line end. `number` counts from 1, for errors."""
        if self.format is Format.JSON:
            return _from_json(line, number)
        key: bytes | None = None
        if self.key_separator is not None:
            head, separator, tail = line.partition(word_bytes(self.key_separator))
            if not separator:
                raise Failure(
                    f"line {number} has no key separator {self.key_separator!r}: {_excerpt(line)}",
                    "every line must be key, separator, value; choose another with --key-separator",
                )
            key, line = self._field(head, self.key_format, number), tail
        return Outgoing(key, self._field(line, self.format, number))

    def _field(self, data: bytes, form: Format, number: int) -> bytes | None:
        if self.null is not None and data == word_bytes(self.null):
            return None
        return decode_bytes(data, form, f"line {number}")


def word_bytes(word: str) -> bytes:
    """The bytes of a word of the command line, also if they are not UTF-8."""
    return word.encode("utf-8", "surrogateescape")


def decode_bytes(data: bytes, form: Format, where: str) -> bytes:
    try:
        if form is Format.HEX:
            return bytes.fromhex(data.decode("ascii").strip().removeprefix("0x"))
        if form is Format.BASE64:
            return base64.b64decode(data.strip(), validate=True)
    except (ValueError, binascii.Error):
        raise Failure(f"{where} is not {form}: {_excerpt(data)}") from None
    return data


def parse_header(text: str) -> tuple[str, bytes | None]:
    """`name=value` from the command line; a bare `name` has a null value."""
    name, equals, value = text.partition("=")
    if not name:
        raise Failure(f"header {text!r} has no name", "write name=value")
    if not is_text(name):
        raise Failure(f"the header name {name!a} is not UTF-8 text", exit_code=EXIT_USAGE)
    return name, word_bytes(value) if equals else None


_JSON_FIELDS = {"key", "key_base64", "value", "value_base64", "headers", "partition", "timestamp"}
_JSON_IGNORED = {"topic", "offset", "timestamp_type", "time"}


def _from_json(line: bytes, number: int) -> Outgoing:
    try:
        document = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise Failure(f"line {number} is not JSON ({error}): {_excerpt(line)}") from None
    if not isinstance(document, dict):
        raise Failure(f"line {number} is not a JSON object: {_excerpt(line)}", 'write {"key": …, "value": …}')
    unknown = sorted(set(document) - _JSON_FIELDS - _JSON_IGNORED)
    if unknown:
        raise Failure(
            f"line {number} has the unknown field {unknown[0]!r}",
            f"the fields are {', '.join(sorted(_JSON_FIELDS))}; put the record's own JSON into value",
        )
    partition = document.get("partition")
    if partition is not None and (not isinstance(partition, int) or isinstance(partition, bool)):
        raise Failure(f"line {number}: partition {partition!r} is not a number")
    return Outgoing(
        _json_bytes(document, "key", number),
        _json_bytes(document, "value", number),
        _json_headers(document.get("headers"), number),
        partition,
        _json_timestamp(document.get("timestamp"), number),
    )


def _json_bytes(document: dict[str, Any], name: str, number: int) -> bytes | None:
    encoded = document.get(f"{name}_base64")
    if encoded is not None:
        return decode_bytes(str(encoded).encode(), Format.BASE64, f"line {number}: {name}_base64")
    value = document.get(name)
    if value is None:
        return None
    if isinstance(value, str):
        return value.encode("utf-8", "surrogatepass")
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def _json_headers(value: Any, number: int) -> Headers:
    if value is None:
        return []
    if isinstance(value, dict):
        value = [{"name": name, "value": item} for name, item in value.items()]
    headers: Headers = []
    for item in value if isinstance(value, list) else [value]:
        if not isinstance(item, dict) or not isinstance(item.get("name"), str):
            raise Failure(f"line {number}: headers must be an object or a list of {{name, value}}")
        if not is_text(item["name"]):
            raise Failure(f"line {number}: the header name {item['name']!a} is not UTF-8 text")
        headers.append((item["name"], _json_bytes(item, "value", number)))
    return headers


def _json_timestamp(value: Any, number: int) -> int | None:
    if value is None:
        return None
    if isinstance(value, int) and not isinstance(value, bool) and -TIME_MS_MAX <= value <= TIME_MS_MAX:
        return value
    time_ms = iso_time_ms(value) if isinstance(value, str) else None
    if time_ms is None:
        raise Failure(f"line {number}: timestamp {value!r} is neither milliseconds nor an ISO time")
    return time_ms


def to_json(record: Incoming) -> dict[str, Any]:
    return {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": record.timestamp_ms,
        "timestamp_type": record.timestamp_type,
        **_bytes_json("key", record.key),
        **_bytes_json("value", record.value),
        "headers": [{"name": name, **_bytes_json("value", value)} for name, value in record.headers],
    }


def _bytes_json(name: str, data: bytes | None) -> dict[str, str | None]:
    if data is None:
        return {name: None}
    try:
        return {name: data.decode("utf-8")}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(data).decode("ascii")}


def time_text(timestamp_ms: int | None) -> str:
    if timestamp_ms is None:
        return "-"
    try:
        moment = datetime.fromtimestamp(timestamp_ms / 1000, UTC)
    except (ValueError, OverflowError, OSError):
        return str(timestamp_ms)
    return moment.strftime("%Y-%m-%dT%H:%M:%S.") + f"{timestamp_ms % 1000:03d}Z"


_ESCAPES = {"\\t": "\t", "\\n": "\n", "\\r": "\r", "\\0": "\0", "\\\\": "\\"}


def unescape(text: str) -> str:
    """Replace `\\t`, `\\n`, `\\r`, `\\0` and `\\\\`."""
    result, position = [], 0
    while position < len(text):
        pair = text[position : position + 2]
        result.append(_ESCAPES.get(pair, text[position]))
        position += 2 if pair in _ESCAPES else 1
    return "".join(result)


@dataclass(frozen=True, slots=True)
class Writing:
    """How records become lines. A template has field names in braces and overrides `keys`."""

    format: Format = Format.TEXT
    key_format: Format = Format.TEXT
    keys: bool = False
    key_separator: str = "\t"
    null: str = "null"
    template: str | None = None

    def __post_init__(self) -> None:
        """Try the template before the first record, which may come late."""
        if self.template is not None:
            self._templated(Incoming("", 0, 0, 0, "", b"", b"", []), b"")

    def line(self, record: Incoming) -> bytes:
        if self.format is Format.JSON:
            return json.dumps(to_json(record), ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass") + b"\n"
        value = self._field(record.value, self.format)
        if self.template is not None:
            return self._templated(record, value) + b"\n"
        if self.keys:
            return self._field(record.key, self.key_format) + word_bytes(self.key_separator) + value + b"\n"
        return value + b"\n"

    def _field(self, data: bytes | None, form: Format) -> bytes:
        if data is None:
            return word_bytes(self.null)
        if form is Format.HEX:
            return data.hex().encode()
        if form is Format.BASE64:
            return base64.b64encode(data)
        return data

    def _templated(self, record: Incoming, value: bytes) -> bytes:
        assert self.template is not None
        # surrogateescape: bytes that are not UTF-8 pass through str unchanged.
        fields = {
            "topic": record.topic,
            "partition": record.partition,
            "offset": record.offset,
            "timestamp": record.timestamp_ms,
            "time": time_text(record.timestamp_ms),
            "key": self._field(record.key, self.key_format).decode("utf-8", "surrogateescape"),
            "value": value.decode("utf-8", "surrogateescape"),
            "headers": ",".join(f"{name}={self._field(v, self.format).decode('utf-8', 'replace')}" for name, v in record.headers),
        }
        try:
            return self.template.format_map(fields).encode("utf-8", "surrogateescape")
        except (KeyError, ValueError, IndexError, AttributeError, TypeError) as error:
            why = f"unknown field {error}" if isinstance(error, KeyError) else str(error)
            raise Failure(
                f"the template {self.template!r} is invalid: {why}", f"the fields are {', '.join(fields)}", exit_code=EXIT_USAGE
            ) from None


def _excerpt(data: bytes, limit: int = 60) -> str:
    text = data.decode("utf-8", "replace")
    return text if len(text) <= limit else text[:limit] + "…"
