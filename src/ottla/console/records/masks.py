"""Hides fields of records: `value.card`, `headers.token`, `people*:value.address.city`, `key`. Pure.

A masked record has other bytes. What is searched, shown and exported is the masked record, so that no search can find out what is
hidden. A value that has a hidden field but is no JSON object cannot be masked by field, and is hidden altogether.
"""

from __future__ import annotations

import fnmatch
import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from ottla.cli.failure import EXIT_USAGE, Failure
from ottla.cli.formats import Incoming

HIDDEN: Final = "***"
_PARTS: Final = ("key", "value", "headers")


@dataclass(frozen=True, slots=True)
class Mask:
    topics: str
    part: str
    path: tuple[str, ...]

    def applies_to(self, topic: str) -> bool:
        return fnmatch.fnmatchcase(topic, self.topics)


def parse_mask(text: str) -> Mask:
    topics, colon, field = text.rpartition(":")
    part, *path = field.split(".")
    if part not in _PARTS or not all(path) or (part == "headers" and len(path) != 1):
        raise Failure(
            f"--mask {text!r} names no field",
            "write value.card, headers.token, key, or people*:value.address.city",
            exit_code=EXIT_USAGE,
        )
    return Mask(topics if colon else "*", part, tuple(path))


class Masks:
    def __init__(self, texts: Sequence[str]) -> None:
        """Failure if one names no field."""
        self._masks = [parse_mask(text) for text in texts]

    def of(self, topic: str) -> list[Mask]:
        return [mask for mask in self._masks if mask.applies_to(topic)]

    def hide_in(self, topic: str, other: str) -> bool:
        """Whether all that is hidden in a topic is hidden in the other too."""
        return all(mask.applies_to(other) for mask in self.of(topic))

    def masked(self, record: Incoming, unions: Collection[str] = ()) -> Incoming:
        """The record without what is hidden; itself if nothing is.

        `unions` are the parts in Avro's JSON encoding, where the value of a union is behind the name of its branch.
        """
        for mask in self.of(record.topic):
            record = _without(record, mask, mask.part in unions)
        return record


def _without(record: Incoming, mask: Mask, unions: bool) -> Incoming:
    if mask.part == "headers":
        name = mask.path[0]
        if all(each != name for each, _ in record.headers):
            return record
        return replace(record, headers=[(each, HIDDEN.encode() if each == name else value) for each, value in record.headers])
    data = record.key if mask.part == "key" else record.value
    if data is None:
        return record
    hidden = _hidden(data, mask.path, unions)
    if hidden is data:
        return record
    return replace(record, key=hidden) if mask.part == "key" else replace(record, value=hidden)


def _hidden(data: bytes, path: tuple[str, ...], unions: bool) -> bytes:
    if not path:
        return HIDDEN.encode()
    try:
        document = json.loads(data)
    except (ValueError, RecursionError):
        return HIDDEN.encode()
    if not isinstance(document, (dict, list)):
        return data
    if not _hide(document, path, unions):
        return data
    return json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass")


def _hide(value: Any, path: tuple[str, ...], unions: bool) -> bool:
    """Whether there was something to hide. A list is looked into, and with `unions` an object that may name a branch."""
    if isinstance(value, list):
        return sum(_hide(each, path, unions) for each in value) > 0
    if not isinstance(value, dict):
        return False
    if path[0] not in value:
        return unions and len(value) == 1 and _hide(next(iter(value.values())), path, unions)
    if len(path) == 1:
        value[path[0]] = HIDDEN
        return True
    return _hide(value[path[0]], path[1:], unions)
