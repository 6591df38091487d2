"""Messages and header versions as Apache Kafka's own classes write them, byte for byte.

`messages/<api>.json` holds, for every API and version of 3.9.2 and 4.3.0, one message with every field set and (where the version
allows any) one with nulls and without tagged fields; bytes stand as {"hex": ...}. `header_versions.json` has for each API key, by
version, the header versions of request and response.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ottla.protocol.headers import decode_request_header, decode_response, encode_request, encode_response
from ottla.protocol.registry import API_BY_KEY, API_BY_NAME
from ottla.wire.codec import decode, encode
from ottla.wire.schema import Field, ListOf, Type, definition_of

_HERE = Path(__file__).parent
_FILES = sorted((_HERE / "messages").glob("*.json"))


def _build(cls: type, values: dict[str, Any]) -> Any:
    fields: dict[str, Field] = {field.name: field for field in definition_of(cls).fields}
    return cls(**{name: _value(fields[name].type, value) for name, value in values.items()})


def _value(type_: Type, value: Any) -> Any:
    if value is None:
        return None
    if isinstance(type_, ListOf):
        return [_value(type_.element, item) for item in value]
    if isinstance(type_, type):
        return _build(type_, value)
    return bytes.fromhex(value["hex"]) if isinstance(value, dict) else value


@pytest.mark.parametrize("file", _FILES, ids=lambda file: file.stem)
def test_same_bytes_as_kafka(file: Path) -> None:
    api = API_BY_NAME[file.stem]
    seen = set()
    for case in json.loads(file.read_text()):
        cls = getattr(api, case["kind"])
        version = case["version"]
        expected = bytes.fromhex(case["hex"])
        message = _build(cls, case["message"])
        where = f"{cls.__name__} v{version}"
        assert encode(message, version).hex() == expected.hex(), where
        assert decode(cls, version, expected) == message, where
        seen.add((case["kind"], version))
    versions = range(api.min_version, api.max_version + 1)
    assert seen == {(kind, version) for kind in ("request", "response") for version in versions}


def test_every_api_has_golden_messages() -> None:
    assert {file.stem for file in _FILES} == set(API_BY_NAME)


def test_headers_have_the_versions_of_kafka() -> None:
    table: dict[str, list[list[int]]] = json.loads((_HERE / "header_versions.json").read_text())
    for key, versions in table.items():
        api = API_BY_KEY[int(key)]
        assert len(versions) == api.max_version + 1, api
        for version, (request_header, response_header) in enumerate(versions):
            request = api.request()
            frame = b"".join(bytes(part) for part in encode_request(api, version, 7, "me", request))  # type: ignore[arg-type]
            start = {0: 8, 1: 12, 2: 13}[request_header]
            assert frame[4 + start :] == encode(request, version), (api.name, version)
            header, position = decode_request_header(memoryview(frame)[4:])
            assert position == start, (api.name, version)
            assert header.client_id == (None if request_header == 0 else "me")

            response = api.response()
            frame = b"".join(bytes(part) for part in encode_response(api, version, 7, response))  # type: ignore[arg-type]
            assert frame[4 + 4 + response_header :] == encode(response, version), (api.name, version)
            assert decode_response(api, version, memoryview(frame)[4:])[0] == 7
