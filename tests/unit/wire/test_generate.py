"""The source that mypyc compiles for the hot messages, executed: it reads and writes what the interpreted codec does."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import ottla.wire
from ottla.errors import MalformedInput
from ottla.ports import Part
from ottla.wire.codec import REQUEST_ELEMENTS_MAX, decoder, encoder, executed
from ottla.wire.generate import HOT, WINDOW_BYTES
from ottla.wire.schema import definition_of
from ottla.wire.source import DecoderSource, EncoderSource
from tests.kit.random_messages import messages

GENERATE = Path(ottla.wire.__file__).with_name("generate.py")
CASES = [(name.rpartition(".")[2], version) for name, (first, last) in HOT.items() for version in range(first, last + 1)]

few = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.fixture(scope="module")
def generated(tmp_path_factory: pytest.TempPathFactory) -> dict[str, ModuleType]:
    folder = tmp_path_factory.mktemp("native")
    subprocess.run([sys.executable, str(GENERATE), str(folder)], check=True)
    found = {}
    for name in HOT:
        short = name.rpartition(".")[2]
        spec = importlib.util.spec_from_file_location(f"generated_{short}", folder.joinpath(*name.split(".")).with_suffix(".py"))
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[spec.name] = module
        spec.loader.exec_module(module)
        found[short] = module
    return found


def class_of(module: ModuleType, name: str, kind: str) -> Any:
    return getattr(module, "".join(word.capitalize() for word in name.split("_")) + kind)


def joined(parts: list[Part]) -> bytes:
    return b"".join(bytes(part) for part in parts)  # type: ignore[arg-type]


def read(decode: Any, data: bytes, position: int) -> object:
    try:
        return decode(memoryview(data), position)
    except MalformedInput:
        return "malformed"


@pytest.mark.parametrize(("name", "version"), CASES)
@few
@given(data=st.data())
def test_requests_are_read_alike(generated: dict[str, ModuleType], name: str, version: int, data: st.DataObject) -> None:
    cls = class_of(generated[name], name, "Request")
    parts: list[Part] = []
    executed(EncoderSource(cls, version))(data.draw(messages(cls, version)), parts)
    good = b"header" + joined(parts)
    fast, slow = decoder(cls, version, REQUEST_ELEMENTS_MAX), executed(DecoderSource(cls, version, REQUEST_ELEMENTS_MAX))
    assert read(fast, good, 6) == read(slow, good, 6) != "malformed"
    at = data.draw(st.integers(6, len(good)))
    assert read(fast, good[:at], 6) == read(slow, good[:at], 6)
    if at < len(good):
        other = good[:at] + bytes([data.draw(st.integers(0, 255))]) + good[at + 1 :]
        assert read(fast, other, 6) == read(slow, other, 6)


@pytest.mark.parametrize(("name", "version"), CASES)
@few
@given(data=st.data())
def test_responses_are_written_alike(generated: dict[str, ModuleType], name: str, version: int, data: st.DataObject) -> None:
    cls = class_of(generated[name], name, "Response")
    response = data.draw(messages(cls, version))
    fast: list[Part] = []
    slow: list[Part] = []
    encoder(cls, version)(response, fast)
    executed(EncoderSource(cls, version))(response, slow)
    assert joined(fast) == joined(slow)
    assert len(fast) == len(slow)


@pytest.mark.parametrize("version", [8, 9, 13])
@pytest.mark.parametrize("name_bytes", [1, 300, 2000])
@pytest.mark.parametrize("sizes", [(0,), (900, 100, 30), (5000, 1, 5000), (WINDOW_BYTES - 20, 1000, 1000)])
def test_records_and_names_across_the_window(
    generated: dict[str, ModuleType], version: int, name_bytes: int, sizes: tuple[int, ...]
) -> None:
    produce = generated["produce"]
    data = [produce.PartitionProduceData(index=at, records=bytes([at]) * size) for at, size in enumerate(sizes)]
    topics = [produce.TopicProduceData(name=word * name_bytes, topic_id=bytes(16), partition_data=data) for word in "ab"]
    request = produce.ProduceRequest(acks=-1, timeout_ms=7, topic_data=topics)
    parts: list[Part] = []
    executed(EncoderSource(produce.ProduceRequest, version))(request, parts)
    frame = memoryview(bytearray(joined(parts)))
    found, position = decoder(produce.ProduceRequest, version, REQUEST_ELEMENTS_MAX)(frame, 0)
    assert position == len(frame)
    if version < 13:
        assert found == request
    records = found.topic_data[1].partition_data[-1].records
    assert isinstance(records, memoryview)
    assert records.obj is frame.obj  # not a copy


def test_a_message_is_declared_alike(generated: dict[str, ModuleType]) -> None:
    for name in HOT:
        module, source = generated[name.rpartition(".")[2]], importlib.import_module(name)
        for cls in vars(module).values():
            if isinstance(cls, type) and cls.__module__ == module.__name__:
                fields = [field.name for field in definition_of(cls).fields]
                assert fields == [field.name for field in definition_of(getattr(source, cls.__name__)).fields]
                assert repr(cls()) == repr(getattr(source, cls.__name__)())
                assert cls() == cls()
