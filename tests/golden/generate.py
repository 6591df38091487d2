"""Write the golden messages of an API with Apache Kafka's own classes: `python -m tests.golden.generate API [3.9.2|4.3.0]`

For each version of both kinds, one message with every field set, and one with nulls and defaults where the version allows any.
Versions that Kafka 4 dropped need 3.9.2. Writes messages/API.json and the line of the API in header_versions.json. Needs Java 17
and Kafka's jars (fetched once).
"""

from __future__ import annotations

import argparse
import base64
import itertools
import json
import subprocess
from pathlib import Path
from typing import Any

from ottla.protocol.registry import API_BY_KEY, API_BY_NAME, Api
from ottla.wire.schema import Field, ListOf, Type, definition_of
from tests.kit.peers import KAFKA_4, java_command

HERE = Path(__file__).parent
LARGEST = {"int8": 1 << 7, "int16": 1 << 15, "uint16": 1 << 16, "int32": 1 << 31, "uint32": 1 << 32, "int64": 1 << 63}


class Values:
    """One value after the other, each different from those before."""

    def __init__(self, *, full: bool) -> None:
        self.full = full
        self._numbers = itertools.count(1)

    def message(self, cls: type, version: int) -> dict[str, Any]:
        fields = [field for field in definition_of(cls).fields if version in field.versions]
        if not self.full:
            fields = [field for field in fields if field.tag is None]
        return {field.name: self.field(field, version) for field in fields}

    def field(self, field: Field, version: int) -> Any:
        if not self.full and version in field.nullable:
            return None
        return self.value(field.type, version)

    def value(self, type_: Type, version: int) -> Any:
        if isinstance(type_, ListOf):
            return [self.value(type_.element, version)]
        if isinstance(type_, type):
            return self.message(type_, version)
        number = next(self._numbers)
        if type_ in LARGEST:
            return (70_000 + number) % LARGEST[type_]
        match type_:
            case "bool":
                return True
            case "float64":
                return number + 0.5
            case "string":
                return f"text-{number}"
            case "uuid":
                return {"hex": bytes(range(number, number + 16)).hex()}
            case _:
                return {"hex": bytes([number] * 3).hex()}


def for_kafka(cls: type, values: dict[str, Any], version: int) -> dict[str, Any]:
    """The message as Kafka's JSON: names in camel case, bytes in base64, absent fields left out."""
    fields = {field.name: field for field in definition_of(cls).fields}
    found = {}
    for name, value in values.items():
        first, *rest = name.split("_")
        found["".join([first, *(word.capitalize() for word in rest)])] = _json(fields[name].type, value, version)
    return found


def _json(type_: Type, value: Any, version: int) -> Any:
    if value is None:
        return None
    if isinstance(type_, ListOf):
        return [_json(type_.element, item, version) for item in value]
    if isinstance(type_, type):
        return for_kafka(type_, value, version)
    if not isinstance(value, dict):
        return value
    raw = bytes.fromhex(value["hex"])
    return base64.urlsafe_b64encode(raw).decode().rstrip("=") if type_ == "uuid" else base64.b64encode(raw).decode()


def generate(api: Api, kafka: str) -> None:
    cases: list[dict[str, Any]] = []
    for kind, version in itertools.product(("request", "response"), range(api.min_version, api.max_version + 1)):
        cls = getattr(api, kind)
        full, bare = (Values(full=is_full).message(cls, version) for is_full in (True, False))
        for message in [full] if full == bare else [full, bare]:
            cases.append({"kind": kind, "version": version, "kafka": kafka, "message": message})
    lines = [
        f"{(cls := getattr(api, case['kind'])).__name__} {api.key} {case['version']} "
        + json.dumps(for_kafka(cls, case["message"], case["version"]))
        for case in cases
    ]
    command = java_command(kafka, str(HERE / "Golden.java"))
    done = subprocess.run(command, input="\n".join(lines) + "\n", capture_output=True, text=True)
    answers = done.stdout.split("\n")[:-1]
    assert len(answers) == len(cases), done.stderr
    headers: dict[int, list[int]] = {}
    for case, answer in zip(cases, answers, strict=True):
        request_header, response_header, case["hex"] = answer.split(" ")
        headers[case["version"]] = [int(request_header), int(response_header)]
    rows = ",\n".join(json.dumps(case, ensure_ascii=False) for case in cases)
    (HERE / "messages" / f"{api.name}.json").write_text(f"[\n{rows}\n]\n")
    table = json.loads((HERE / "header_versions.json").read_text())
    table[str(api.key)] = [headers[version] for version in sorted(headers)]
    known = sorted(int(key) for key in table if int(key) in API_BY_KEY)
    rows = ",\n".join(f'"{key}": {json.dumps(table[str(key)])}' for key in known)
    (HERE / "header_versions.json").write_text(f"{{\n{rows}\n}}\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("api", choices=sorted(API_BY_NAME), metavar="API")
    parser.add_argument("kafka", nargs="?", default=KAFKA_4)
    options = parser.parse_args()
    generate(API_BY_NAME[options.api], options.kafka)


if __name__ == "__main__":
    main()
