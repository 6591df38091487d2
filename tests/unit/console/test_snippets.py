"""What is copied selects what was asked for. tests/console/test_api.py runs the commands."""

from __future__ import annotations

import shlex
from typing import Any

import pytest

from ottla.console.records.snippets import Snippets, needs_ranges, ranges_of


def snippets(bounds: dict[int, tuple[int, int]] | None = None, **asked: str) -> Snippets:
    names = {name.rstrip("_"): value for name, value in asked.items()}
    return Snippets("here:1", "orders", "http://c", names, None if bounds is None else ranges_of(names, bounds))


class Spark:
    """Notes the options that a program sets."""

    def __init__(self) -> None:
        self.options: dict[str, str] = {}

    def option(self, name: str, value: str) -> Spark:
        self.options[name] = value
        return self

    def __getattr__(self, name: str) -> Any:
        return self if name in ("read", "readStream") else lambda *words, **more: self


def spark_options(program: str) -> dict[str, str]:
    spark = Spark()
    exec(program, {"spark": spark})
    return spark.options


def test_one_record() -> None:
    found = snippets({1: (7, 900)}, from_="7", partitions="1", limit="1", order="oldest")
    assert "ranges = {1: (7, 8)}" in found.python()
    assert "-p 1 -o 7 -c 1 -e" in found.kcat()
    assert found.ottla() == "ottla consume orders -p 1 --from 7 --max-messages 1 -b here:1"
    assert spark_options(found.pyspark()) == {
        "kafka.bootstrap.servers": "here:1",
        "assign": '{"orders": [1]}',
        "startingOffsets": '{"orders": {"1": 7}}',
        "endingOffsets": '{"orders": {"1": 8}}',
    }


def test_positions_are_offsets() -> None:
    found = snippets({0: (5, 9), 1: (3, 3), 2: (0, 4)}, from_="10m")
    assert "ranges = {0: (5, 9), 2: (0, 4)}" in found.python()
    assert [shlex.split(line)[6:-2] for line in found.kcat().splitlines()] == [
        ["-p", "0", "-o", "5", "-c", "4", "-e"],
        ["-p", "2", "-o", "0", "-c", "4", "-e"],
    ]
    assert found.ottla() == "ottla consume orders --from 10m -b here:1"


def test_a_whole_topic_and_a_live_one() -> None:
    assert not needs_ranges({"search": "x", "limit": "100"})
    assert not needs_ranges({"live": "1", "from": "10m"})
    assert needs_ranges({"key": "k"})
    assert spark_options(snippets().pyspark()) == {"kafka.bootstrap.servers": "here:1", "subscribe": "orders"}
    assert " -o beginning -e " in snippets().kcat()
    assert " -o end -f " in snippets(live="1").kcat()
    assert "--follow" in snippets(live="1").ottla()


def test_what_is_not_selected_by_is_said() -> None:
    found = snippets({0: (0, 9)}, where="value.n > 1", search="it's", key="k", partitions="0")
    assert found.python().startswith("# This does not select by where='value.n > 1'.\n")
    assert found.pyspark().startswith("# This does not select by where=")
    assert found.kcat().startswith("# This does not select by where=")
    assert found.ottla().startswith("# This does not select by key='k'.\nottla consume orders --grep")
    assert snippets(where="x").ottla() == "ottla find -t orders --where x -b here:1"


@pytest.mark.parametrize("asked", [{"search": 'a"b\n', "regex": "1", "ignore_case": "1"}, {"key_base64": "/w=="}, {"key": "é"}])
def test_programs_compile(asked: dict[str, str]) -> None:
    for live in ("", "1"):
        for found in (snippets(None, live=live, **asked), snippets({0: (0, 9)}, **asked), snippets({}, **asked)):
            compile(found.python(), "python", "exec")
            compile(found.pyspark(), "pyspark", "exec")
