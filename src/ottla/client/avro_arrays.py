"""Avro schemas with which a few bytes can claim any number of values: arrays whose items take no bytes. Pure.

An array begins with its count. Where each item takes a byte, the count ends with the data; an array of nulls has no such end.
"""

from __future__ import annotations

from typing import Any, Final

_RECORDS: Final = ("record", "error")
_NAMED: Final = (*_RECORDS, "enum", "fixed")


def has_endless_array(schema: Any) -> bool:
    """Whether a schema has such an array. fastavro has parsed it, with full names."""
    named: dict[str, Any] = {}
    items: list[Any] = []
    left = [schema]
    while left:
        each = left.pop()
        if isinstance(each, list):
            left += each
        elif isinstance(each, dict):
            kind = each["type"]
            if kind in _NAMED:
                named[each["name"]] = each
            if kind in _RECORDS:
                left += [field["type"] for field in each["fields"]]
            elif kind == "array":
                items.append(each["items"])
                left.append(each["items"])
            elif kind == "map":
                left.append(each["values"])
            elif not isinstance(kind, str):
                left.append(kind)
    known: dict[str, bool] = {}
    return any(_takes_no_bytes(each, named, known) for each in items)


def _takes_no_bytes(schema: Any, named: dict[str, Any], known: dict[str, bool]) -> bool:
    if isinstance(schema, str):
        return _takes_no_bytes(named[schema], named, known) if schema in named else schema == "null"
    if isinstance(schema, list):
        return False  # the number of the branch
    kind = schema["type"]
    if kind == "fixed":
        return bool(schema["size"] == 0)
    if kind in _RECORDS:
        name = schema["name"]
        if name not in known:
            known[name] = False  # a record within itself has no end, and is refused by its depth
            known[name] = all(_takes_no_bytes(field["type"], named, known) for field in schema["fields"])
        return known[name]
    if kind in ("array", "map", "enum"):
        return False
    return _takes_no_bytes(kind, named, known)
