"""`ottla pipeline` as people run it: a process of its own (F77, F80)."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner

from ottla.cli.app import app

if TYPE_CHECKING:
    from ottla.testing import Broker

COPY = """
from ottla import pipelines as p

orders = p.source("{source}", p.json("id long"), name="orders")
p.sql(orders, to=p.sink("{out}", key="id"), name="copy", query="SELECT * FROM orders")
"""


def ottla(*words: object) -> tuple[int, str, str]:
    result = CliRunner().invoke(app, ["pipeline", *map(str, words)])
    return result.exit_code, result.stdout, result.stderr


def test_init_writes_a_pipeline_that_loads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from ottla.pipelines import graph, loading, project

    monkeypatch.chdir(tmp_path)
    assert ottla("init", "shop")[0] == 0
    assert [flow.name for flow in graph.plan(loading.load(tmp_path / "shop.py")).queries] == ["revenue", "big_orders"]
    assert project.read(tmp_path / "shop.py").storage == str(tmp_path / ".ottla" / "shop")
    code, _, stderr = ottla("init", "shop")
    assert (code, stderr.splitlines()[0]) == (1, "error: shop.py already exists")


@pytest.mark.parametrize("command", ["check", "run", "status", "reset"])
def test_a_file_that_does_not_load_is_one_line_with_its_place(tmp_path: Path, command: str) -> None:
    file = tmp_path / "bad.py"
    file.write_text("import json\n\njson.loads('{')\n")
    code, stdout, stderr = ottla(command, file)
    assert (code, stdout) == (1, "")
    assert stderr.splitlines() == [f"error: {file}:3: JSONDecodeError: Expecting property name enclosed in double quotes: "
                                   "line 1 column 2 (char 1)"]  # fmt: skip


@pytest.mark.parametrize("made", ['F.col("x")', "F.lit(1)", 'F.udf("double")(len)'])
def test_a_function_of_spark_in_a_module_says_where_it_belongs(tmp_path: Path, made: str) -> None:
    """PySpark's own error is an AssertionError without a word."""
    file = tmp_path / "early.py"
    file.write_text(f"from pyspark.sql import functions as F\n\nearly = {made}\n")
    # A process of its own: a session of another test would be the one that PySpark misses.
    checked = subprocess.run(
        [sys.executable, "-m", "ottla", "pipeline", "check", file], capture_output=True, text=True, timeout=300
    )
    assert checked.returncode == 1
    first, hint = checked.stderr.splitlines()
    assert first.startswith(f"error: {file}:3: ")
    assert not first.endswith(": ")
    assert hint == "  the file is loaded before Spark starts: call functions of pyspark.sql inside of a flow"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("from ottla import pipelines as p\nx = p.source('a'\n", ":2: '(' was never closed"),
        ("import os\nimport no_such_module\n", ":2: ModuleNotFoundError: No module named 'no_such_module'"),
        ("from ottla import pipelines as p\np.source('no topic')\n", ":2: 'no topic' is not a topic name"),
        ("import sys\nsys.exit(3)\n", ":2: SystemExit: 3"),
        ("from ottla import pipelines as p\n", " declares no flow"),
        (None, ": no such file"),
    ],
)
def test_a_file_that_is_no_pipeline_says_why_in_one_line(tmp_path: Path, text: str | None, said: str) -> None:
    file = tmp_path / "bad.py"
    if text is not None:
        file.write_text(text)
    code, stdout, stderr = ottla("run", file)
    assert (code, stdout) == (1, "")
    assert stderr.splitlines()[0] == f"error: {file}{said}"


@pytest.mark.parametrize("command", ["run", "status"])
def test_a_broker_that_is_away_is_said_before_spark_is_started(tmp_path: Path, command: str) -> None:
    file = tmp_path / "shop.py"
    file.write_text(COPY.format(source="in", out="out"))
    code, _, stderr = ottla(command, file, "-b", "127.0.0.1:1")
    assert code == 1
    assert "127.0.0.1:1" in stderr
    assert "nothing was read or written" in stderr
    assert "pyspark" not in stderr


def test_flags_that_cannot_be_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "shop.py"
    file.write_text(COPY.format(source="in", out="out"))
    assert "is not a duration" in ottla("run", file, "--trigger", "soon")[2]
    assert "two copies of a task" in ottla("run", file, "--conf", "spark.speculation=true")[2]
    assert ottla("run", file, "--conf", "nonsense")[0] == 2
    assert "flow 'nothing' does not exist" in ottla("reset", file, "--yes", "--flow", "nothing")[2]
    assert "no terminal to ask" in ottla("reset", file)[2]


def test_a_run_is_watched_stopped_and_reset(tmp_path: Path, ottla_broker: Broker) -> None:
    """A SIGTERM to all processes of the run lets the batch finish, without a stack trace; status and reset need no Spark."""
    from confluent_kafka import Producer

    for name in ("cli.in", "cli.out"):
        ottla_broker.create_topic(name, 1)
    producer = Producer({"bootstrap.servers": ottla_broker.bootstrap_servers, "log_level": 0})
    for number in range(10):
        producer.produce("cli.in", value=json.dumps({"id": number}))
    producer.flush(60)
    file = tmp_path / "watched.py"
    file.write_text(COPY.format(source="cli.in", out="cli.out"))
    where = ["-b", ottla_broker.bootstrap_servers]
    command = [sys.executable, "-m", "ottla", "pipeline", "run", str(file), "--json", *where, "--master", "local[1]"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, **pipes, text=True, start_new_session=True) as process:  # type: ignore[call-overload]
        first = json.loads(process.stdout.readline())
        os.killpg(process.pid, signal.SIGTERM)
        _, stderr = process.communicate(timeout=600)
        assert process.returncode == 0, stderr
    assert "Traceback" not in stderr
    assert "Exception" not in stderr
    assert (first["flow"], first["rows"], first["records_out"], first["lag"]) == ("copy", 10, 10, 0)

    everything = json.loads(ottla("status", "--all", "--json", *where)[1])["pipelines"]
    (published,) = [each for each in everything if each["pipeline"] == "watched"]
    assert (published["state"], published["plan"]["file"]) == ("stopped", str(file))
    assert [(each["flow"], each["progress"]["records_out"]) for each in published["flows"]] == [("copy", 10)]

    flow = json.loads(ottla("status", file, "--json", *where)[1])["flows"][0]
    assert (flow["group_id"], flow["committed"], flow["lag"], flow["batch"], flow["sink_batch"]) == ("watched.copy", 10, 0, 0, 0)
    code, _, stderr = ottla("reset", file, "--yes", "--to", "earliest", *where)
    assert code == 0, stderr
    flow = json.loads(ottla("status", file, "--json", *where)[1])["flows"][0]
    assert (flow["query_id"], flow["committed"], flow["lag"]) == (None, 0, 10)
