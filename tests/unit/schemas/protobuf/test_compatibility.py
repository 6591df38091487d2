"""Verdicts on Protobuf schemas (PB01-PB04), and data of a compatible writer that is read (CO01)."""

from __future__ import annotations

import random
from typing import Any

import pytest
from google.protobuf import message_factory
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from ottla.schemas.compatibility import incompatibilities
from ottla.schemas.model import PROTOBUF, ResolvedReference
from ottla.schemas.parsing import parse
from ottla.schemas.protobuf.protobuf_schema import ProtobufSchema

HEAD = 'syntax = "proto3"; package p; '


def rules(reader: str, writer: str, head: str = HEAD) -> set[str]:
    return {each.rule for each in incompatibilities(parse(PROTOBUF, head + reader), parse(PROTOBUF, head + writer))}


@pytest.mark.parametrize(
    ("reader", "writer"),
    [
        ("message M { int32 a = 1; int32 b = 2; }", "message M { int32 a = 1; }"),
        ("message M { int32 a = 1; }", "message M { int32 a = 1; int32 b = 2; }"),
        ("message M { int32 z = 1; }", "message M { int32 a = 1; }"),
        ("message M {} message N {}", "message M {}"),
        ("message N {} message M {}", "message M {} message N {}"),
        ("message M {} enum E { A = 0; }", "message M {}"),
        ("message M {}", "message M {} enum E { A = 0; }"),
        ("enum E { A = 0; C = 1; }", "enum E { A = 0; B = 1; D = 2; }"),
        ("message M { repeated string a = 1; }", "message M { string a = 1; }"),
        ("message M { bytes a = 1; }", "message M { repeated bytes a = 1; }"),
        ("message M { repeated M a = 1; }", "message M { M a = 1; }"),
        ("message M { oneof o { int32 a = 1; int32 b = 2; } }", "message M { int32 a = 1; }"),
        ("message M { int32 a = 1; }", "message M { oneof o { int32 a = 1; } }"),
        ("message M { oneof p { int32 a = 1; int32 b = 2; } }", "message M { oneof o { int32 a = 1; int32 b = 2; } }"),
        ("message M { }", "message M { oneof o { int32 a = 1; int32 b = 2; } }"),
    ],
)
def test_pb01_changes_that_are_fine(reader: str, writer: str) -> None:
    assert not rules(reader, writer)


@pytest.mark.parametrize(
    ("reader", "writer", "rule"),
    [
        ("message N {}", "message M {}", "MESSAGE_REMOVED"),
        ("message M { string a = 1; }", "message M { int32 a = 1; }", "FIELD_SCALAR_KIND_CHANGED"),
        ("message M { M a = 1; }", "message M { int32 a = 1; }", "FIELD_KIND_CHANGED"),
        ("message M { map<string, int32> a = 1; }", "message M { string a = 1; }", "FIELD_KIND_CHANGED"),
        ("message M { map<string, string> a = 1; }", "message M { map<string, int32> a = 1; }", "FIELD_SCALAR_KIND_CHANGED"),
        ("message M { repeated int32 a = 1; }", "message M { int32 a = 1; }", "FIELD_NUMERIC_LABEL_CHANGED"),
        ("message M { oneof o { int32 a = 1; } }", "message M { oneof o { int32 a = 1; int32 b = 2; } }", "ONEOF_FIELD_REMOVED"),
        ("message M { oneof o { int32 a = 1; int32 b = 2; } }", "message M { int32 a = 1; int32 b = 2; }",
         "MULTIPLE_FIELDS_MOVED_TO_ONEOF"),
        (
            "message M { oneof o { int32 a = 1; int32 b = 2; } }",
            "message M { oneof o { int32 a = 1; } int32 b = 2; }",
            "FIELD_MOVED_TO_EXISTING_ONEOF",
        ),
        ("message M { N a = 1; } message N {} message O {}", "message M { O a = 1; } message N {} message O {}",
         "FIELD_NAMED_TYPE_CHANGED"),
        ("message M { message I { string a = 1; } }", "message M { message I { int32 a = 1; } }", "FIELD_SCALAR_KIND_CHANGED"),
    ],
)  # fmt: skip
def test_pb02_changes_that_break_readers(reader: str, writer: str, rule: str) -> None:
    assert rules(reader, writer) == {rule}


def test_pb02_package_and_required() -> None:
    assert rules('syntax = "proto3"; package q; message M {}', 'syntax = "proto3"; package p; message M {}', "") >= {
        "PACKAGE_CHANGED"
    }
    two = 'syntax = "proto2"; '
    assert rules("message M { required int32 a = 1; }", "message M {}", two) == {"REQUIRED_FIELD_ADDED"}
    assert rules("message M {}", "message M { required int32 a = 1; }", two) == {"REQUIRED_FIELD_REMOVED"}
    assert rules("message M { required string a = 1; }", "message M { optional string a = 1; }", two) == {"REQUIRED_FIELD_ADDED"}


GROUPS = [
    ("int32", "int64", "uint32", "uint64", "bool", "E"),
    ("sint32", "sint64"),
    ("string", "bytes"),
    ("fixed32", "sfixed32"),
    ("fixed64", "sfixed64"),
    ("float",),
    ("double",),
]


def test_pb03_kinds_that_are_read_as_each_other() -> None:
    for group in GROUPS:
        for other in GROUPS:
            for new in group:
                found = rules(
                    f"message M {{ {new} a = 1; }} enum E {{ A = 0; }}", f"message M {{ {other[0]} a = 1; }} enum E {{ A = 0; }}"
                )
                assert (not found) == (group is other), (new, other[0])


def test_pb04_a_type_in_an_import_is_the_same_type() -> None:
    def schema(text: str, imported: str = "", version: int = 1) -> Any:
        references = [ResolvedReference("i.proto", "i", version, 'syntax = "proto3"; package p; ' + imported)] if imported else []
        return parse(PROTOBUF, 'syntax = "proto3"; package p; ' + ('import "i.proto"; ' if imported else "") + text, references)

    alone = schema("message M { I i = 1; } message I { int32 a = 1; }")
    moved = schema("message M { I i = 1; }", "message I { int32 a = 1; }")
    assert not incompatibilities(moved, alone)
    assert not incompatibilities(alone, moved)
    changed = schema("message M { I i = 1; }", "message I { string a = 1; }", 2)
    assert [(each.rule, each.path) for each in incompatibilities(changed, moved)] == [("FIELD_SCALAR_KIND_CHANGED", "I.1")]


def random_message(chance: random.Random) -> dict[int, str]:
    types = [each for group in GROUPS for each in group] + [
        "N",
        "map<string, int32>",
        "repeated string",
        "repeated int32",
        "repeated N",
    ]
    return {number: chance.choice(types) for number in chance.sample(range(1, 8), 4)}


def text_of(fields: dict[int, str], oneof: list[int]) -> str:
    plain = " ".join(f"{kind} f{number} = {number};" for number, kind in fields.items() if number not in oneof)
    inner = " ".join(f"{fields[number]} f{number} = {number};" for number in oneof)
    choice = f"oneof o {{ {inner} }}" if oneof else ""
    return HEAD + f"message M {{ {plain} {choice} }} message N {{ int32 x = 1; string y = 2; }} enum E {{ A = 0; B = 1; }}"


@given(st.integers(0, 2**32))
@settings(max_examples=200, deadline=None)
def test_co01_messages_of_a_compatible_writer_are_read(seed: int) -> None:
    chance = random.Random(seed)
    old = random_message(chance)
    new = {number: (random_message(chance).get(number, kind) if chance.random() < 0.3 else kind) for number, kind in old.items()}
    if chance.random() < 0.3:
        new.pop(chance.choice(list(new)))
    oneofs = [
        [number for number, kind in each.items() if " " not in kind and "<" not in kind][: chance.randint(0, 2)]
        for each in (old, new)
    ]
    writer, reader = (parse(PROTOBUF, text_of(fields, oneof)) for fields, oneof in zip((old, new), oneofs, strict=True))
    assert isinstance(writer, ProtobufSchema)
    assert isinstance(reader, ProtobufSchema)
    assume(not incompatibilities(reader, writer))
    writes, reads = (message_factory.GetMessageClass(each.linked.pool.FindMessageTypeByName("p.M")) for each in (writer, reader))
    message = writes()
    for field in writes.DESCRIPTOR.fields:
        values: dict[int, Any] = {field.CPPTYPE_STRING: "s", field.CPPTYPE_BOOL: True, field.CPPTYPE_ENUM: 1}
        value = b"b" if field.type == field.TYPE_BYTES else values.get(field.cpp_type, 1)
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            getattr(message, field.name)["k"] = 1
        elif field.message_type is not None:
            (getattr(message, field.name).add() if field.is_repeated else getattr(message, field.name)).x = 5
        elif field.is_repeated:
            getattr(message, field.name).append(value)
        else:
            setattr(message, field.name, value)
    read = reads.FromString(message.SerializeToString())
    for field in reads.DESCRIPTOR.fields:
        if field.containing_oneof is None and field.number in old and field.number not in oneofs[0]:
            assert getattr(read, field.name), f"{text_of(new, oneofs[1])}\n{text_of(old, oneofs[0])}\n{field.name}"
