"""How queries end is looked at, whenever that happens (F79), without Spark."""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from ottla import pipelines as p
from ottla.client.options import client_options
from ottla.pipelines import PipelineError, running, spark_errors, takeover
from ottla.pipelines.exactly_once import Totals
from ottla.pipelines.failure import Place, Superseded
from ottla.pipelines.project import ON_FAILURE, Project
from ottla.testing import Broker
from tests.kit.wait import until

FLOW = SimpleNamespace(name="copy", place=Place("shop.py", 4), to=p.sink("out"))
# What Spark 4.3 says when something is raised in a worker, shortened in the middle.
WORKER = """An exception was raised by the Python Proxy. Return Message: Traceback (most recent call last):
  File "/x/py4j/clientserver.py", line 644, in _call_proxy
    return_value = getattr(self.pool[obj_id], method)(*params)
                   ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
  File "{file}", line {line}, in odd
    raise ValueError("no way")
pyspark.errors.exceptions.captured.PythonException: An exception was thrown from the Python worker:
Traceback (most recent call last):
  File "{file}", line {line}, in odd
    raise ValueError("no way")
{raised}

=== Streaming Query ===
Identifier: shop.copy [id = a1e1d4e1, runId = c2c79aac]
KeyError: of the plan
"""
OF_4_3 = "An exception was thrown from the Python worker:\n"
OF_4_1 = "\n  An exception was thrown from the Python worker. Please see the stack trace below.\n"
USERS, OURS = ("shop.py", 16), ("/x/ottla/pipelines/producing.py", 199)


SHOP = Project(Path("shop.py"), "shop")


class Query:
    """Ends at the look after so many, as it is told."""

    def __init__(self, looks: int, failure: str | None = None) -> None:
        self._looks, self._failure = looks, failure

    @property
    def isActive(self) -> bool:
        self._looks -= 1
        return self._looks >= 0

    def exception(self) -> Exception | None:
        return Exception(self._failure) if self._failure else None

    stops: Exception | None = None
    """What becomes of an attempt to stop it."""
    stopped = False

    def stop(self) -> None:
        self.stopped = True
        if self.stops is not None:
            raise self.stops


class Sink:
    failure: PipelineError | None = None

    def __init__(self) -> None:
        self.closing, self.closed = threading.Event(), False
        self.totals = Totals()

    def begin_again(self) -> None:
        self.failure = None

    def is_recorded(self, query: Query) -> bool:
        return True

    def close(self) -> None:
        self.closed = True


def flows(*lives: Query, project: Project = SHOP) -> running.PipelineRun:
    """One flow that has these lives, one after the other."""
    plan = SimpleNamespace(flows=[FLOW])
    made = running.PipelineRun(cast(Any, None), project, cast(Any, plan))
    made.sinks = cast(Any, {"copy": Sink()})
    first, *later = lives
    made.queries = cast(Any, {"copy": first})
    made._writers = cast(Any, {"copy": SimpleNamespace(start=lambda: later.pop(0))})
    return made


def watch(found: running.PipelineRun) -> None:
    """As the command does it."""
    while found.running:
        found.wait(60)


@pytest.mark.parametrize("looks", range(6))
def test_a_failure_is_told_whenever_it_comes(looks: int) -> None:
    with pytest.raises(PipelineError, match="flow 'copy': ValueError: no"):
        watch(flows(Query(looks, "ValueError: no")))


@pytest.mark.parametrize("looks", range(6))
def test_an_end_without_failure_is_an_end(looks: int) -> None:
    watch(flows(Query(looks)))


@pytest.mark.parametrize("looks", range(6))
def test_a_query_that_began_too_slowly_for_spark_begins_again(looks: int) -> None:
    second = Query(3)
    watch(flows(Query(looks, "Python worker failed to connect back."), second))
    assert not second.isActive
    with pytest.raises(PipelineError, match="failed to connect back"):
        watch(flows(*(Query(looks, "Python worker failed to connect back.") for _ in range(20))))


def test_what_went_wrong_first_is_told_and_all_are_stopped() -> None:
    """A query that fails, and then does not even stop."""
    failing, other = Query(0, "ValueError: no"), Query(1)
    failing.stops = OSError("nobody there")
    found = flows(failing)
    found.queries["other"], found.sinks["other"] = cast(Any, other), cast(Any, Sink())
    with pytest.raises(PipelineError, match="flow 'copy': ValueError: no") as caught, found:
        watch(found)
    assert caught.value.__notes__ == ["flow 'copy' does not stop: nobody there"]
    assert other.stopped
    assert all(cast(Any, sink).closed for sink in found.sinks.values())


def test_a_query_that_does_not_stop_is_told_where_nothing_else_went_wrong() -> None:
    well = Query(0)
    well.stops = OSError("nobody there")
    found = flows(well)
    with pytest.raises(PipelineError, match="flow 'copy' does not stop: nobody there"), found:
        watch(found)


def two_flows(failing: list[Query], other: Query, project: Project = SHOP) -> running.PipelineRun:
    found = flows(*failing, project=project)
    cast(Any, found.plan).flows = [FLOW, SimpleNamespace(name="other", place=FLOW.place, to=FLOW.to)]
    found.queries["other"], found.sinks["other"] = cast(Any, other), cast(Any, Sink())
    return found


def test_a_flow_fails_alone_and_is_told_at_the_end(caplog: pytest.LogCaptureFixture) -> None:
    other = Query(1_000_000)
    found = two_flows([Query(0, "ValueError: no")], other)
    found.wait(0.1)
    assert found.running
    assert (found.state("copy"), found.state("other")) == ("failed", "running")
    assert "Flow copy failed, the others go on: " in caplog.text
    assert not other.stopped
    with pytest.raises(PipelineError, match="flow 'copy': ValueError: no"), found:
        found.wait(0.1)
    assert other.stopped


def test_a_flow_that_failed_starts_again_after_a_while_that_doubles(caplog: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    told = tmp_path / "told"
    again = Project(
        Path("shop.py"),
        "shop",
        restart=ON_FAILURE,
        restart_backoff_ms=20,
        restart_backoff_max_ms=40,
        alert_command=f'echo "$OTTLA_EVENT $OTTLA_PIPELINE $OTTLA_FLOW" >> {told}; cat >> {told}; echo >> {told}',
    )
    lives = [Query(0, f"ValueError: {number}") for number in range(4)]
    last = Query(1_000_000)
    found = two_flows([*lives, last], Query(1_000_000), again)
    heard: list[dict[str, Any]] = []
    found.heard = heard.append
    with found:
        until_s = time.monotonic() + 60
        while found.queries["copy"] is not cast(Any, last):
            found.wait(0.1)
            assert time.monotonic() < until_s
        assert found.state("copy") == "running"
        found.sinks["copy"].totals.batches += 1
        found.wait(0.1)
        assert not found.failures
    assert "Flow copy runs again" in caplog.text
    lines = told.read_text().splitlines()
    assert [line for line in lines if not line.startswith("{")] == ["failed shop copy"] * 4 + ["recovered shop copy"]
    documents = [json.loads(line) for line in lines if line.startswith("{")]
    assert [each["restart_in_s"] for each in documents] == [0.02, 0.04, 0.04, 0.04, None]
    assert heard == documents
    assert documents[0]["error"] == {"message": "flow 'copy': ValueError: 0", "place": "shop.py:4", "hint": None}


def test_a_flow_that_another_driver_has_does_not_start_again() -> None:
    again = Project(Path("shop.py"), "shop", restart=ON_FAILURE, restart_backoff_ms=1)
    found = flows(Query(0), project=again)
    fenced = PipelineError("stop the other driver")
    fenced.is_final = True
    found.sinks["copy"].failure = fenced
    with pytest.raises(PipelineError, match="stop the other driver"):
        watch(found)


def test_a_driver_that_an_upgrade_replaced_raises_no_alert(tmp_path: Path) -> None:
    told = tmp_path / "told"
    project = Project(Path("shop.py"), "shop", restart=ON_FAILURE, alert_command=f"cat >> {told}")
    found = flows(Query(0), project=project)
    found.sinks["copy"].failure = Superseded("version 2 of the pipeline is live")
    heard: list[dict[str, Any]] = []
    found.heard = heard.append
    with pytest.raises(Superseded), found:
        watch(found)
    assert heard == []
    assert not told.exists()
    assert found.state("copy") == "stopped"


def test_an_outage_of_the_broker_is_told_once_and_raises_no_alert(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    told = tmp_path / "told"
    found = flows(Query(1_000_000), project=Project(Path("shop.py"), "shop", alert_command=f"cat >> {told}"))
    version_watch = cast(Any, SimpleNamespace(found=None, away=None))
    found._watches = [version_watch]
    heard: list[dict[str, Any]] = []
    found.heard = heard.append
    with found:
        for away in (None, "no broker answers: refused", "no broker answers: timed out", None, None):
            version_watch.away = away
            found.wait(0)
    assert [(each["event"], each["pipeline"], each["flow"]) for each in heard] == [
        ("waiting", "shop", None),
        ("connected", "shop", None),
    ]
    assert heard[0]["error"]["message"] == "no broker answers: refused"
    assert caplog.text.count("flows wait") == caplog.text.count("flows go on") == 1
    assert not told.exists()


def test_the_watch_sees_that_a_broker_goes_and_comes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(takeover, "_WATCH_S", 0.01)
    monkeypatch.setattr(takeover, "_REACH_TIMEOUT_S", 0.2)
    stopping = threading.Event()
    with Broker() as broker:
        found = takeover.VersionWatch(client_options({"kafka.bootstrap.servers": broker.bootstrap_servers}), "1", {}, stopping)
        try:
            assert found.away is None
            broker.kill()
            until(lambda: found.away is not None, "the outage is seen", 30)
            assert broker.bootstrap_servers in str(found.away)
            broker.start()
            until(lambda: found.away is None, "the broker is seen", 30)
        finally:
            stopping.set()


@pytest.mark.parametrize(
    ("at", "raised", "line", "said"),
    [
        (USERS, "ValueError: no way", 16, "flow 'copy': ValueError: no way"),
        (USERS, "shop.Refused: three\nlines of\n  text", 16, "flow 'copy': shop.Refused: three"),
        (OURS, "RuntimeError: topic out: MESSAGE_TOO_LARGE: out-0", None, "flow 'copy' (topic 'out'): MESSAGE_TOO_LARGE: out-0"),
    ],
)
def test_what_a_worker_raised_is_told_with_its_line(at: tuple[str, int], raised: str, line: int | None, said: str) -> None:
    text = WORKER.format(file=at[0], line=at[1], raised=raised)
    assert OF_4_3 in text
    for each in (text, text.replace(OF_4_3, OF_4_1)):
        found = spark_errors.query_failure(Exception(each), cast(Any, FLOW))
        assert found.message == said
        assert found.place == (FLOW.to.place if line is None else Place("shop.py", line))


def test_what_spark_raised_is_told_without_its_package() -> None:
    text = "Proxy\npyspark.errors.exceptions.captured.SparkRuntimeException: [USER_RAISED_EXCEPTION] too large SQLSTATE: P0001\n"
    found = spark_errors.query_failure(Exception(text), cast(Any, FLOW))
    assert found.message == "flow 'copy': SparkRuntimeException: [USER_RAISED_EXCEPTION] too large SQLSTATE: P0001"
