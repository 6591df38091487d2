"""Arrays that may be of any length are found."""

from __future__ import annotations

from typing import Any

import fastavro
import pytest

from ottla.client.avro_arrays import has_endless_array


def record(name: str, **fields: Any) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": [{"name": each, "type": type_} for each, type_ in fields.items()]}


def array(items: Any) -> dict[str, Any]:
    return {"type": "array", "items": items}


@pytest.mark.parametrize(
    ("schema", "endless"),
    [
        ("null", False),
        (array("null"), True),
        (array({"type": "null"}), True),
        (array(["null"]), False),
        (array("int"), False),
        ({"type": "map", "values": "null"}, False),
        ({"type": "map", "values": array("null")}, True),
        (["null", array({"type": "fixed", "name": "f", "size": 0})], True),
        (array(record("a.Empty")), True),
        (array(record("R", a=record("a.Empty"), b="null")), True),
        (record("R", a=record("a.Empty"), b=array("a.Empty")), True),
        (record("R", a=record("a.Empty"), b=array(record("S", a="a.Empty", b="int"))), False),
        (record("Tree", children=array("Tree")), False),
        (record("a.List", next=["null", "a.List"], values=array(array("int"))), False),
    ],
)
def test_endless_arrays(schema: Any, endless: bool) -> None:
    assert has_endless_array(fastavro.parse_schema(schema)) is endless
