"""Avro schemas judged by Avro's own library for Java: parsing, text and verdicts on random schemas (AV01-AV09, SR05, CO01)."""

from __future__ import annotations

import json
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from ottla.schemas.compatibility import incompatibilities
from ottla.schemas.model import AVRO, InvalidSchema, ResolvedReference
from ottla.schemas.parsing import parse
from tests.kit.peers import QUICK_JVM, avro_jars, program
from tests.kit.random_avro import RandomAvro, plain

pytestmark = pytest.mark.java


def ask(questions: list[dict[str, Any]]) -> list[dict[str, Any]]:
    java = program("java", "install a Java 17 runtime (Debian: `apt-get install openjdk-17-jdk-headless`)")
    path = ":".join(map(str, avro_jars()))
    command = [java, *QUICK_JVM, "-ea", "-cp", path, str(Path(__file__).with_name("AvroJudge.java"))]
    given = "".join(json.dumps(each) + "\n" for each in questions)
    done = subprocess.run(command, input=given, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    answers = [json.loads(line) for line in done.stdout.split("\n") if line]
    assert len(answers) == len(questions), done.stderr
    return answers


def ours(texts: list[str]) -> str | None:
    references = [ResolvedReference(f"r{n}", "s", 1, text) for n, text in enumerate(texts[:-1])]
    try:
        return parse(AVRO, texts[-1], references).canonical
    except InvalidSchema:
        return None


@cache
def pairs(count: int) -> list[tuple[str, str]]:
    found = []
    for seed in range(count):
        maker = RandomAvro(seed)
        schema = maker.schema()
        other = maker.changed(schema) if seed % 4 else maker.schema()
        found.append((json.dumps(plain(schema)), json.dumps(plain(other))))
    return found


TEXTS = [
    ['"string"'],
    ['{"type": "string"}'],
    ['{"type": {"type": "string"}}'],
    ["string"],
    ['{"type": "Foo"}'],
    ['{"type": "int", "logicalType": "date"}'],
    ['{"type": "record", "name": "a.b.R", "fields": []}'],
    ['{"type": "record", "name": "R", "namespace": "a.b", "fields": []}'],
    ['{"type": "record", "name": "R", "fields": [{"name": "x", "type": "R"}]}'],
    ['{"type": "record", "name": "a.R", "fields": [{"name": "x", "type": ["null", "R"], "default": null}]}'],
    ['{"type": "record", "name": "R", "fields": [{"name": "x", "type": "int"}, {"name": "x", "type": "int"}]}'],
    ['{"type": "record", "name": "R", "fields": [{"name": "x", "type": "Later"}, '
     '{"name": "y", "type": {"type": "fixed", "name": "Later", "size": 2}}]}'],
    ['{"type": "record", "name": "R-1", "fields": []}'],
    ['{"type": "record", "name": "R", "namespace": "a-b", "fields": []}'],
    ['{"type": "record", "name": "R", "fields": [{"name": "x-y", "type": "int"}]}'],
    ['{"type": "record", "name": "R", "fields": [{"name": "é", "type": "int"}]}'],
    ['{"type": "record", "name": "int", "fields": []}'],
    ['{"type": "record", "name": "a.int", "fields": [{"name": "x", "type": "a.int"}]}'],
    ['{"type": "record", "name": "record", "namespace": "a", "fields": [{"name": "x", "type": ["null", "record"]}]}'],
    ['{"type": "enum", "name": "E", "symbols": ["A", "A"]}'],
    ['{"type": "enum", "name": "E", "symbols": ["A-B"]}'],
    ['{"type": "enum", "name": "E", "symbols": ["A"], "default": "B"}'],
    ['{"type": "enum", "name": "E", "symbols": ["A", "B"], "default": "B", "aliases": ["F", "x.G"], "doc": "d"}'],
    ['{"type": "fixed", "name": "F", "size": -1}'],
    ['{"type": "fixed", "name": "F", "size": 1.0}'],
    ['{"type": "fixed", "name": "F", "size": "1"}'],
    ['["null", "null"]'],
    ['["null", ["int"]]'],
    ['[]'],
    ['["null", {"type": "array", "items": "int"}, {"type": "array", "items": "int"}]'],
    ['{"type": "array"}'],
    ['{"type": "map", "values": {"type": "int", "x": 1}, "z": 1e20, "y": 0.0001}'],
    ['{"type": "record", "name": "R", "fields": [{"name": "x", "type": "float", "default": "NaN"}]}'],
    ['{"type": "record", "name": "R", "fields": [{"name": "x", "type": "double", "default": "1e3"}]}'],
    ['{"type": "record", "name": "R", "fields": [{"name": "x", "type": "double", "default": 12345678.9}]}'],
    ['{"type": "record", "name": "R", "fields": [{"name": "x", "type": "double", "default": "x"}]}'],
    ['{"type": "record", "name": "R", "fields": [{"name": "x", "type": "int", "default": 1.0}]}'],
    ['{"type": "record", "name": "R", "fields": [{"name": "x", "type": "int", "default": 3000000000}]}'],
    ['{"type": "record", "name": "R", "fields": [{"name": "x", "type": "int", "default": null}]}'],
    ['{"type": "record", "name": "R", "fields": [{"name": "x", "type": ["null", "int"], "default": 1}]}'],
    ['{"type": "record", "name": "R", "fields": [{"name": "x", "type": ["null", "int"], "default": "1"}]}'],
    ['{"type": "record", "name": "R", "fields": [{"name": "x", "type": {"type": "array", "items": "int"}, "default": ["a"]}]}'],
    ['{"type": "record", "name": "R", "fields": [{"name": "x", "type": {"type": "map", "values": "int"}, "default": {"a": 1}}]}'],
    ['{"type": "record", "name": "R", "fields": [{"name": "x", "order": "DESCENDING", "type": "int"}]}'],
    ['{"type": "record", "name": "R", "fields": [{"name": "x", "order": "up", "type": "int"}]}'],
    ['{"type": "record", "name": "R", "fields": [{"name": "x", "type": "int", "logicalType": "date", "doc": 5}]}'],
    ['{"type": "record", "name": "R", "fields": [{"name": "x", "type": {"type": "record", "name": "I", "fields": '
     '[{"name": "i", "type": "int", "default": 1}]}, "default": {}}]}'],
    ['{"type": "record", "name": "R", "fields": [{"name": "x", "type": {"type": "record", "name": "I", "fields": '
     '[{"name": "i", "type": "int"}]}, "default": {}}]}'],
    ['{"type": "record", "name": "a.R", "fields": [{"name": "x", "type": '
     '{"type": "fixed", "name": "F", "namespace": "", "size": 1}}]}'],
    ['{"type": "record", "name": "a.R", "aliases": ["S", ".T", "b.U"], "fields": []}'],
    ['{"type": "record", "name": "R", "aliases": "S", "fields": []}'],
    ['{"type": "error", "name": "R", "fields": []}'],
    ['{"type": "record", "fields": []}'],
    ['{"type": "record", "name": "R"}'],
    ['{"name": "R", "fields": []}'],
    ['/* words */ {"type": "int", // more\n "a": "/* kept */"}'],
    ['{"type": "int"} {}'],
    ['{"type": "int", "type": "long"}'],
    ['{"type": "int", "a": 9007199254740993, "b": -0.0, "c": 1E400, "d": 123456789012345678901234567890}'],
    ['{"type": "int", "a": "\\u00e9\\u0007/\\/ \\u2028 \\ud83d\\ude00"}'],
    ['{"type": "fixed", "name": "a.F", "size": 1}', '{"type": "record", "name": "a.R", "fields": [{"name": "x", "type": "F"}]}'],
    ['{"type": "fixed", "name": "a.F", "size": 1}',
     '{"type": "record", "name": "b.R", "fields": [{"name": "x", "type": "a.F"}]}'],
    ['{"type": "fixed", "name": "F", "size": 1}', '{"type": "record", "name": "b.R", "fields": [{"name": "x", "type": "F"}]}'],
    ['{"type": "fixed", "name": "F", "size": 1}', '{"type": "fixed", "name": "F", "size": 2}'],
    ['{"type": "fixed", "name": "F", "size": 1}', '{"type": "fixed", "name": "F", "size": 1}'],
    ['{"type": "record", "name": "O", "fields": [{"name": "x", "type": {"type": "fixed", "name": "F", "size": 1}}]}',
     '{"type": "record", "name": "R", "fields": [{"name": "x", "type": "F"}, {"name": "y", "type": "O"}]}'],
]  # fmt: skip


def test_sr05_text_and_av09_validity_are_those_of_java() -> None:
    texts = TEXTS + [[text] for pair in pairs(300) for text in pair]
    answers = ask([{"parse": each} for each in texts])
    differ = [(each, answer, ours(each)) for each, answer in zip(texts, answers, strict=True) if answer.get("text") != ours(each)]
    assert not differ, "\n".join(f"{text}\n  java {java}\n  ours {mine}" for text, java, mine in differ[:10])


def verdicts(count: int) -> None:
    asked = [(reader, writer) for one, other in pairs(count) for reader, writer in ((one, other), (other, one))]
    answers = ask([{"reader": reader, "writer": writer} for reader, writer in asked])
    differ = []
    compatible = 0
    for (reader, writer), answer in zip(asked, answers, strict=True):
        if ours([reader]) is None or ours([writer]) is None:
            assert "error" in answer, f"only Java parses\n{reader}\nor\n{writer}"
            continue
        if answer.get("error") == "Schema fields not set yet":
            continue  # Java's parser looks into a record that it has not read yet
        if "error" in answer:
            differ.append(f"{reader}\n{writer}\n  only Java refuses {answer}")
            continue
        found = incompatibilities(parse(AVRO, reader), parse(AVRO, writer))
        compatible += not found
        kinds = sorted(f"{each.rule} {each.path}" for each in found)
        # A default that no reader can use counts as none. Java's comparison does not look at it, its validator does.
        unusable = (
            bool(found)
            and answer["valid"] is not True
            and {each.rule for each in found} == {"READER_FIELD_MISSING_DEFAULT_VALUE"}
        )
        if answer["compatible"] != (not found) and not unusable:
            differ.append(f"{reader}\n{writer}\n  java {answer}\n  ours {kinds}")
    assert not differ, "\n".join(differ[:5])
    assert count / 5 < compatible < count * 1.8, "too few pairs of one kind prove little"


def test_av01_to_av08_verdicts_are_those_of_java() -> None:
    verdicts(300)


@pytest.mark.slow
def test_av01_to_av08_verdicts_of_thousands_of_pairs_are_those_of_java() -> None:
    verdicts(6000)
