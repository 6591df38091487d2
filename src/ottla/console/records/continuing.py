"""Where a search goes on: what it has not shown yet, as a word for a URL. Pure.

The word holds offsets only, and is checked like any other input.
"""

from __future__ import annotations

import base64
import binascii
import json
import zlib
from collections.abc import Mapping
from typing import Any, Final

from ottla.cli.positions import TopicIndex
from ottla.console.endpoint import bad

Left = Mapping[TopicIndex, tuple[int, int, list[int]]]
"""Start, end and offsets between them that were shown, of each partition."""
_WORD_MAX: Final = 1 << 16
_TEXT_MAX: Final = 1 << 22
_OFFSET_MAX: Final = 1 << 63


def word_of(left: Left) -> str | None:
    """None if nothing is left."""
    if not left:
        return None
    topics: dict[str, list[Any]] = {}
    for (topic, index), (start, end, shown) in left.items():
        topics.setdefault(topic, []).append([index, start, end, *([shown] if shown else [])])
    data = zlib.compress(json.dumps(topics, separators=(",", ":")).encode(), 9)
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def read_word(word: str) -> dict[TopicIndex, tuple[int, int, list[int]]]:
    if len(word) > _WORD_MAX:
        raise bad("continue is too long")
    try:
        data = base64.urlsafe_b64decode(word + "=" * (-len(word) % 4))
        unpacking = zlib.decompressobj()
        text = unpacking.decompress(data, _TEXT_MAX)
        return {
            (topic, _number(index)): (_number(start), _number(end), [_number(each) for each in (rest[0] if rest else [])])
            for topic, entries in json.loads(text).items()
            for index, start, end, *rest in entries
        }
    except (ValueError, TypeError, AttributeError, binascii.Error, zlib.error):
        raise bad("continue is not the token of a search") from None


def _number(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < _OFFSET_MAX:
        raise ValueError(value)
    return value
