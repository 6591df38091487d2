"""Our codec and kio's, side by side: the same message is the same bytes, for every API and version that both know.

kio is an oracle for valid data only; hostile bytes are no matter for it.
"""

from __future__ import annotations

import datetime
import io
from dataclasses import fields
from typing import Any
from uuid import UUID

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from kio.index import load_payload_module
from kio.schema.errors import ErrorCode as KioErrorCode
from kio.schema.index import api_key_map, schema_name_map
from kio.serial import entity_reader, entity_writer
from kio.serial._introspect import EntityField, EntityTupleField, classify_field, get_schema_field_type
from kio.static.constants import EntityType

from ottla.protocol.registry import Api
from ottla.wire.codec import decode, encode
from ottla.wire.schema import definition_of
from tests.kit.random_messages import every_message, messages, name_of

_KIND = {"request": EntityType.request, "response": EntityType.response}
_ERROR_CODES = {int(code.value) for code in KioErrorCode}
_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)


def _known_to_kio(api: Api, kind: str, version: int) -> bool:
    name = api_key_map.get(api.key)
    return name is not None and _KIND[kind] in schema_name_map[name].get(version, {})


_CASES = [case for case in every_message() if _known_to_kio(*case)]


def _kio_class(api: Api, kind: str, version: int) -> type[Any]:
    module = load_payload_module(api.key, version, _KIND[kind])  # type: ignore[arg-type]
    found: type[Any] = getattr(module, getattr(api, kind).__name__)
    return found


def _to_kio(message: Any, target: type[Any], version: int) -> Any:
    """The same message in kio's classes, which have one class per version and the fields in the same order."""
    ours = [field for field in definition_of(type(message)).fields if version in field.versions]
    theirs = fields(target)
    assert len(ours) == len(theirs), (message, target)
    values = {}
    for our, their in zip(ours, theirs, strict=True):
        value = getattr(message, our.name)
        assert our.name.startswith(their.name.replace("__", "_").removesuffix("_")), (our.name, their.name)
        if value is None and our.tag is not None and isinstance(our.type, type):
            continue
        values[their.name] = _value_to_kio(value, their, version)
    return target(**values)


def _value_to_kio(value: Any, field: Any, version: int) -> Any:
    if value is None:
        return None
    match classify_field(field):
        case EntityField(type_=part):
            return _to_kio(value, part, version)
        case EntityTupleField(type_=part):
            return tuple(_to_kio(item, part, version) for item in value)
    kind = get_schema_field_type(field)
    if isinstance(value, list):
        return tuple(_scalar_to_kio(item, kind) for item in value)
    return _scalar_to_kio(value, kind)


def _scalar_to_kio(value: Any, kind: str) -> Any:
    match kind:
        case "error_code":
            return KioErrorCode(value)
        case "uuid":
            return None if value == bytes(16) else UUID(bytes=value)
        case "timedelta_i32" | "timedelta_i64":
            return datetime.timedelta(milliseconds=value)
        case "datetime_i64":
            return None if value == -1 else _EPOCH + datetime.timedelta(milliseconds=value)
        case _:
            return value


def _kio_bytes(entity: Any) -> bytes:
    with io.BytesIO() as out:
        entity_writer(type(entity))(out, entity)
        return out.getvalue()


@pytest.mark.parametrize("case", _CASES, ids=name_of)
def test_same_bytes_as_kio(case: tuple[Api, str, int]) -> None:
    api, kind, version = case
    cls = getattr(api, kind)
    theirs = _kio_class(api, kind, version)

    @settings(
        max_examples=12,
        derandomize=True,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(st.data())
    def check(data: st.DataObject) -> None:
        message = data.draw(messages(cls, version))
        entity = _to_kio(message, theirs, version)
        expected = _kio_bytes(entity)
        assert encode(message, version) == expected
        assert encode(decode(cls, version, expected), version) == expected
        assert entity_reader(theirs)(expected, 0)[0] == entity

    check()


def test_every_api_is_known_to_kio() -> None:
    """A renamed or forgotten API would otherwise drop out of the comparison in silence."""
    missing = {api.name for api, *_ in every_message()} - {api.name for api, *_ in _CASES}
    assert missing <= {"leader_and_isr", "stop_replica", "update_metadata", "controlled_shutdown"}
