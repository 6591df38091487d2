"""`ottla produce --schema` and `ottla consume --schema`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla.testing import Registry
from tests.kit.ottla_command import Ottla

RECORD = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "id", "type": "long"}, {"name": "to", "type": ["null", "string"]}],
}


@pytest.fixture(scope="module")
def url(ottla: Ottla) -> Iterator[str]:
    with Registry(ottla.bootstrap_servers) as registry:
        yield registry.url


@pytest.mark.parametrize(
    ("name", "schema", "value"),
    [
        ("order.avsc", json.dumps(RECORD), '{"id": 7, "to": {"string": "Ana"}}'),
        ("order.json", '{"type": "object", "required": ["id"]}', '{"id": 7}'),
        ("order.proto", 'syntax = "proto3"; message Order { string to = 1; }', '{"to": "Ana"}'),
    ],
)
def test_values_are_written_and_read_with_a_schema(
    ottla: Ottla, topic: str, url: str, tmp_path: Path, name: str, schema: str, value: str
) -> None:
    (tmp_path / name).write_text(schema)
    ottla.ok("produce", topic, "--schema", str(tmp_path / name), "--registry", url, "-p", "0", value)
    ottla.ok("produce", topic, "--schema", "latest", "--registry", url, "-p", "0", stdin=f"{value}\n")
    ottla.ok("produce", topic, "--schema", "latest", "--schema-header", "--registry", url, "-p", "0", value)
    lines = ottla.ok("consume", topic, "--schema", "--registry", url).splitlines()
    assert [json.loads(each) for each in lines] == [json.loads(value)] * 3
    [header] = json.loads(ottla.ok("consume", topic, "--format", "json").splitlines()[-1])["headers"]
    assert header["name"] == "__value_schema_id"


def test_keys_other_records_and_selections(ottla: Ottla, topic: str, url: str, tmp_path: Path) -> None:
    (tmp_path / "key.avsc").write_text('"long"')
    (tmp_path / "order.avsc").write_text(json.dumps(RECORD))
    words = ["--schema", str(tmp_path / "order.avsc"), "--key-schema", str(tmp_path / "key.avsc"), "--registry", url]
    for number in (1, 2):
        ottla.ok("produce", topic, *words, "-k", str(number), f'{{"id": {number}, "to": null}}')
    ottla.ok("produce", topic, "-k", "plain", "words")
    found = ottla.ok("consume", topic, "--schema", "--registry", url, "--keys").splitlines()
    assert sorted(found) == ['1\t{"id": 1, "to": null}', '2\t{"id": 2, "to": null}', "plain\twords"]
    chosen = ottla.ok("consume", topic, "--schema", "--registry", url, "--grep", '"id": 2')
    assert chosen.splitlines() == ['{"id": 2, "to": null}']
    words = ["find", "--topics", topic, "--template", "{key} {value}", "--schema", "--registry", url]
    assert ottla.ok(*words, "--where", "value.id == 2").splitlines() == ['2 {"id": 2, "to": null}']
    assert ottla.ok(*words, "words").splitlines() == ["plain words"]


def test_failures_say_what_to_do(ottla: Ottla, topic: str, url: str, tmp_path: Path) -> None:
    (tmp_path / "order.avsc").write_text(json.dumps(RECORD))
    file = str(tmp_path / "order.avsc")
    wrong = ottla.run("produce", topic, "--schema", file, "--registry", url, '{"id": "x"}')
    assert wrong.returncode == 1
    assert "line 1: the value does not fit schema" in wrong.stderr
    assert "needs --schema" in ottla.run("produce", topic, "--schema-header", "x").stderr
    assert "40401" in ottla.run("produce", topic, "--key-schema", "latest", "--registry", url, "-k", "1", "x").stderr
    assert "names no schema" in ottla.run("produce", topic, "--schema", "order.txt", "--registry", url, "x").stderr
    away = ottla.run("consume", topic, "--schema", "--registry", "nowhere")
    assert "no address of a registry" in away.stderr
