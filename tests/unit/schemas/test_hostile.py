"""Broken schemas: nothing but InvalidSchema is raised, and what is accepted prints to what prints the same (SR11)."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from ottla.schemas.compatibility import incompatibilities
from ottla.schemas.model import AVRO, JSON, PROTOBUF, InvalidSchema
from ottla.schemas.parsing import parse
from tests.kit.random_avro import RandomAvro, plain
from tests.kit.random_json_schema import RandomJsonSchema

PROTO = """syntax = "proto3"; package a.b; import "google/protobuf/timestamp.proto"; option java_package = "x";
message M { reserved 9, 20 to max; reserved "old"; int32 a = 1 [deprecated = true]; map<string, N> m = 2; N n = 3;
  oneof o { string s = 4; google.protobuf.Timestamp t = 5; } message N { optional bytes b = 1; } enum E { A = 0; B = -1; } }
service S { rpc F (M) returns (stream M) { option idempotency_level = IDEMPOTENT; } }"""
JUNK: list[Any] = [None, 1, -1, 1e300, "x", "http://[", "%zz", "#/x", [], {}, True, ["a", 1]]


def with_typos(chance: random.Random, text: str) -> str:
    letters = list(text)
    for _ in range(chance.randint(1, 3)):
        place = chance.randrange(len(letters))
        letters[place] = chance.choice(["", *"{}[]\",:0-9a\\u $#/.=;<>()'"])
    return "".join(letters)


def with_junk(chance: random.Random, value: Any) -> Any:
    if isinstance(value, dict):
        return {key: chance.choice(JUNK) if chance.random() < 0.08 else with_junk(chance, each) for key, each in value.items()}
    return [with_junk(chance, each) for each in value] if isinstance(value, list) else value


def text_of(schema_type: str, seed: int) -> str:
    chance = random.Random(seed)
    if schema_type == PROTOBUF:
        return with_typos(chance, PROTO)
    document = RandomJsonSchema(seed).document() if schema_type == JSON else plain(RandomAvro(seed).schema())
    if schema_type == JSON and chance.random() < 0.3:
        document[chance.choice(["$id", "$ref", "$schema", "items", "required"])] = chance.choice(JUNK)
    text = json.dumps(with_junk(chance, document))
    return with_typos(chance, text) if chance.random() < 0.3 else text


@pytest.mark.parametrize("lenient", [False, True])
@pytest.mark.parametrize("schema_type", [AVRO, JSON, PROTOBUF])
def test_sr11_a_broken_schema_is_refused_or_means_something(schema_type: str, lenient: bool) -> None:
    accepted = 0
    for seed in range(300):
        text = text_of(schema_type, seed)
        try:
            parsed = parse(schema_type, text, lenient=lenient)
        except InvalidSchema:
            continue
        accepted += 1
        again = parse(schema_type, parsed.canonical, lenient=lenient)
        normal = parsed.normalized()
        assert again.canonical == parsed.canonical, text
        assert normal.normalized().canonical == normal.canonical, text
        incompatibilities(again, normal)
    assert 0 < accepted < 300
