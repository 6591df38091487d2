"""Hypothesis strategies that generate any message class in any version.

Values stay within what kio accepts: error codes that Kafka defines, timestamps that `datetime` can hold.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from hypothesis import strategies as st

from ottla.errors import ErrorCode
from ottla.protocol.registry import API_BY_KEY, Api
from ottla.wire.schema import Field, ListOf, Type, definition_of

TIME_MS_MAX = 1 << 43

_INTEGERS = {
    "int8": (-(1 << 7), (1 << 7) - 1),
    "int16": (-(1 << 15), (1 << 15) - 1),
    "uint16": (0, (1 << 16) - 1),
    "int32": (-(1 << 31), (1 << 31) - 1),
    "uint32": (0, (1 << 32) - 1),
    "int64": (-(1 << 63), (1 << 63) - 1),
}

# Some are long enough for a two-byte length in flexible versions.
_TEXTS = st.one_of(st.text(max_size=6), st.sampled_from(["", "x" * 127, "x" * 128, "ž" * 200]))
_BYTES = st.one_of(st.binary(max_size=6), st.sampled_from([b"", b"y" * 126, b"y" * 127, b"y" * 5000]))
_UUIDS = st.one_of(st.just(bytes(16)), st.binary(min_size=16, max_size=16))


def every_message() -> list[tuple[Api, str, int]]:
    """(API, "request" or "response", version) of the whole registry."""
    return [
        (api, kind, version)
        for api in API_BY_KEY.values()
        for kind in ("request", "response")
        for version in range(api.min_version, api.max_version + 1)
    ]


def name_of(case: tuple[Api, str, int]) -> str:
    api, kind, version = case
    return f"{api.name}-{kind}-v{version}"


@cache
def messages(cls: type, version: int) -> st.SearchStrategy[Any]:
    """Messages of one version, or parts of them."""
    fields = {}
    for field in definition_of(cls).fields:
        if version not in field.versions:
            continue
        values = _values(field.type, version, field)
        tagged_struct = isinstance(field.type, type) and field.tag is not None
        if version in field.nullable or tagged_struct:
            values = st.one_of(st.none(), values)
        if field.tag is not None:
            values = st.one_of(values, _default(field))
        fields[field.name] = values
    return st.builds(cls, **fields)


def _default(field: Field) -> st.SearchStrategy[Any]:
    return st.builds(list) if isinstance(field.default, list) else st.just(field.default)


def _values(type_: Type, version: int, field: Field) -> st.SearchStrategy[Any]:
    name = field.name
    if isinstance(type_, ListOf):
        return st.lists(_values(type_.element, version, field), max_size=3)
    if isinstance(type_, type):
        return messages(type_, version)
    if name.endswith("error_code") and type_ == "int16":
        return st.sampled_from([int(code) for code in ErrorCode])
    if type_ in _INTEGERS:
        low, high = _INTEGERS[type_]
        if type_ == "int64" and ("time" in name or name.endswith("_ms")):
            low, high = -1 if field.default == -1 else 0, TIME_MS_MAX
        return st.integers(low, high)
    match type_:
        case "bool":
            return st.booleans()
        case "float64":
            return st.floats(allow_nan=False, allow_infinity=False)
        case "string":
            return _TEXTS
        case "uuid":
            return _UUIDS
        case _:
            return _BYTES
