"""Work on schemas in another process: plain values go in and come out (SR11)."""

from __future__ import annotations

import pickle
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import pytest

from ottla.schemas import work
from ottla.schemas.model import AVRO, JSON, PROTOBUF, InvalidSchema, Reference, ResolvedReference

RECORD = '{"type": "record", "name": "R", "fields": [{"name": "a", "type": "F"}]}'
FIXED = '{"type": "fixed", "name": "F", "size": 4}'


def test_sr11_work_is_done_in_another_process() -> None:
    schema = work.SchemaText(AVRO, RECORD, (ResolvedReference("F", "f", 1, FIXED),))
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        described = pool.submit(work.describe, schema).result()
        assert described.references == (Reference("F", "f", 1),)
        assert described.name == "R"
        broken = pool.submit(work.describe, work.SchemaText(AVRO, RECORD))
        with pytest.raises(InvalidSchema) as refused:
            broken.result()
        assert refused.value.path == "/fields/0/type"
        new = work.SchemaText(JSON, '{"type": "integer"}')
        old = [work.SchemaText(JSON, '{"type": "string"}'), work.SchemaText(JSON, '{"type": "integer"}')]
        assert not pool.submit(work.check, "BACKWARD", new, old).result()
        [conflict] = pool.submit(work.check, "BACKWARD_TRANSITIVE", new, old).result()
        assert (conflict.position, conflict.incompatibility.rule) == (0, "TYPE_CHANGED")


def test_only_the_versions_that_a_level_compares_are_parsed() -> None:
    broken = work.SchemaText(JSON, "{")
    good = work.SchemaText(JSON, '{"type": "string"}')
    assert not work.check("BACKWARD", good, [broken, good])
    assert not work.check("NONE", good, [broken])


def test_every_type_is_described_and_formatted() -> None:
    text = 'syntax = "proto3"; message M { int32 a = 1; }'
    described = work.describe(work.SchemaText(PROTOBUF, text), normalize=True)
    assert pickle.loads(pickle.dumps(described)) == described
    serialized = work.formatted(work.SchemaText(PROTOBUF, text), "serialized")
    assert work.describe(work.SchemaText(PROTOBUF, serialized), normalize=True).canonical == described.canonical
    with pytest.raises(InvalidSchema, match="none of JSON, PROTOBUF, AVRO"):
        work.describe(work.SchemaText("XML", "<a/>"))


def test_another_type_is_incompatible() -> None:
    [conflict] = work.check("FORWARD", work.SchemaText(JSON, "{}"), [work.SchemaText(AVRO, '"string"')])
    assert (conflict.direction, conflict.incompatibility.rule) == ("FORWARD", "SCHEMA_TYPE_CHANGED")
