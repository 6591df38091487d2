"""Data of every writer's schema that a verdict calls compatible is read with the reader's schema (CO01)."""

from __future__ import annotations

import io
import json
from typing import Any

import fastavro
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from ottla.schemas.compatibility import incompatibilities
from ottla.schemas.model import AVRO, InvalidSchema
from ottla.schemas.parsing import parse
from tests.kit.random_avro import Endless, RandomAvro, RandomData, plain, without_logical_types


@given(st.integers(0, 2**32), st.booleans())
@settings(max_examples=300, deadline=None)
def test_co01_data_of_a_compatible_writer_is_read(seed: int, forward: bool) -> None:
    maker = RandomAvro(seed, [""])
    schema = maker.schema()
    reader, writer = (without_logical_types(plain(each)) for each in (schema, maker.changed(schema)))
    if forward:
        reader, writer = writer, reader
    try:
        parsed = [parse(AVRO, json.dumps(each)) for each in (reader, writer)]
    except InvalidSchema:
        assume(False)
    assume(not incompatibilities(parsed[0], parsed[1]))
    try:
        values = [RandomData(seed + number, writer).value(writer) for number in range(3)]
    except Endless:
        assume(False)
    # fastavro wants a default of a double to be a double, as the normal form has it.
    readers, writers = (
        fastavro.parse_schema(json.loads(each.normalized().canonical), _ignore_default_error=True) for each in parsed
    )
    for value in values:
        encoded = io.BytesIO()
        try:
            fastavro.schemaless_writer(encoded, writers, value)
        except ValueError:  # fastavro does not find the branch of a union within a union of records
            assume(False)
        encoded.seek(0)
        read: Any = fastavro.schemaless_reader(encoded, writers, readers)
        assert not encoded.read(), f"{reader}\n{writer}\n{value}\n{read}"
