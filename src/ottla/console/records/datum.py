"""Bytes as people read them: the first format that fits, and why those before it did not. Pure.

The order: the format of an internal topic, that of a schema registry, JSON, text, MessagePack, hex, which always fits. A number
or a word alone is JSON too, but nobody wrote it as such: only objects and arrays are shown as JSON.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from ottla.console.records import msgpack
from ottla.console.schema import BOOLEAN, INTEGER, STRING, Schema, document, listed, maybe

TEXT_MAX: Final = 32 << 10
"""Characters shown in a list."""
WHOLE_MAX: Final = 8 << 20

DATUM: Schema = maybe(
    document(
        format=STRING,
        text=STRING,
        size=INTEGER,
        truncated=BOOLEAN,
        tried_=listed(document(format=STRING, why=STRING)),
        schema_=document(id=INTEGER, type=STRING, subject_=STRING, version_=INTEGER),
        base64_=STRING,
    )
)


class DoesNotFit(Exception):
    """Bytes are not of a format. The message says why."""


@dataclass(frozen=True, slots=True)
class Shown:
    """The text of decoded bytes."""

    text: str
    schema: Mapping[str, Any] | None = None


Decoder = Callable[[bytes], Shown]


def _json(data: bytes) -> Shown:
    text = _utf8(data)
    if not text.lstrip(" \t\r\n").startswith(("{", "[")):
        raise DoesNotFit("it is no object and no array")
    try:
        json.loads(text)
    except (ValueError, RecursionError) as error:
        raise DoesNotFit(str(error)) from None
    return Shown(text)


def _text(data: bytes) -> Shown:
    text = _utf8(data)
    odd = next((char for char in text if char < " " and char not in "\t\r\n\x1b"), None)
    if odd is not None:
        raise DoesNotFit(f"it has the control character U+{ord(odd):04X}")
    return Shown(text)


def _utf8(data: bytes) -> str:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise DoesNotFit(f"it is not UTF-8: byte {error.start} is 0x{data[error.start]:02x}") from None


def _msgpack(data: bytes) -> Shown:
    try:
        value = msgpack.decode(data)
    except msgpack.NotMessagePack as error:
        raise DoesNotFit(str(error)) from None
    return Shown(json.dumps(value, ensure_ascii=False))


def _likely_msgpack(data: bytes) -> Shown:
    """Only maps and arrays: any byte below 0x80 is a number of MessagePack, and most short bytes are a few values."""
    if not 0x80 <= data[0] <= 0x9F and data[0] not in (0xDC, 0xDD, 0xDE, 0xDF):
        raise DoesNotFit("it is no map and no array")
    return _msgpack(data)


def _hex(data: bytes) -> Shown:
    return Shown(data[: TEXT_MAX * 2].hex(" "))


def _base64(data: bytes) -> Shown:
    return Shown(base64.b64encode(data).decode())


def _loose_text(data: bytes) -> Shown:
    return Shown(data.decode("utf-8", "replace"))


FORMATS: Final[dict[str, Decoder]] = {
    "json": _json, "text": _loose_text, "msgpack": _msgpack, "hex": _hex, "base64": _base64
}  # fmt: skip
"""Those that can be asked for by name."""
_GUESSED: Final[tuple[tuple[str, Decoder], ...]] = (
    ("json", _json),
    ("text", _text),
    ("msgpack", _likely_msgpack),
    ("hex", _hex),
)


def datum(
    data: bytes | None, wanted: str = "auto", special: Sequence[tuple[str, Decoder]] = (), *, whole: bool = False
) -> dict[str, Any] | None:
    """The document of a key, a value or a header. `special` are the formats that the topic suggests."""
    if data is None:
        return None
    if not data:
        return {"format": "empty", "text": "", "size": 0, "truncated": False}
    tried = []
    if wanted in FORMATS:
        chosen = [(wanted, FORMATS[wanted]), ("hex", _hex)]
    else:
        chosen = [*special, *(_GUESSED if wanted == "auto" else [("hex", _hex)])]
    for name, decode in chosen:
        try:
            shown = decode(data)
        except DoesNotFit as why:
            tried.append({"format": name, "why": str(why)})
            continue
        return _document(name, shown, data, tried, whole)
    raise AssertionError("hex always fits")


def _document(name: str, shown: Shown, data: bytes, tried: list[dict[str, str]], whole: bool) -> dict[str, Any]:
    limit = WHOLE_MAX if whole else TEXT_MAX
    found: dict[str, Any] = {
        "format": name,
        "text": shown.text[:limit],
        "size": len(data),
        "truncated": len(shown.text) > limit or (name == "hex" and len(data) > TEXT_MAX * 2),
    }
    # That a text is no JSON object is nothing to tell.
    if (tried and name != "text") or (name == "text" and tried[-1:] and data[:1] in b"{["):
        found["tried"] = tried
    if shown.schema is not None:
        found["schema"] = dict(shown.schema)
    if whole:
        found["base64"] = base64.b64encode(data).decode()
    return found
