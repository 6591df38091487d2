"""How queries end is looked at, whenever that happens (F79), without Spark."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any, cast

import pytest

from ottla import pipelines as p
from ottla.pipelines import PipelineError, running, spark_errors
from ottla.pipelines.failure import Place

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
USERS, OURS = ("shop.py", 16), ("/x/ottla/pipelines/producing.py", 199)


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
    failure = None

    def __init__(self) -> None:
        self.closing, self.closed = threading.Event(), False

    def is_recorded(self, query: Query) -> bool:
        return True

    def close(self) -> None:
        self.closed = True


def flows(*lives: Query) -> running.PipelineRun:
    """One flow that has these lives, one after the other."""
    plan = SimpleNamespace(flows=[FLOW])
    made = running.PipelineRun(cast(Any, None), cast(Any, None), cast(Any, plan))
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


@pytest.mark.parametrize(
    ("at", "raised", "line", "said"),
    [
        (USERS, "ValueError: no way", 16, "flow 'copy': ValueError: no way"),
        (USERS, "shop.Refused: three\nlines of\n  text", 16, "flow 'copy': shop.Refused: three"),
        (OURS, "RuntimeError: topic out: MESSAGE_TOO_LARGE: out-0", None, "flow 'copy' (topic 'out'): MESSAGE_TOO_LARGE: out-0"),
    ],
)
def test_what_a_worker_raised_is_told_with_its_line(at: tuple[str, int], raised: str, line: int | None, said: str) -> None:
    found = spark_errors.query_failure(Exception(WORKER.format(file=at[0], line=at[1], raised=raised)), cast(Any, FLOW))
    assert found.message == said
    assert found.place == (FLOW.to.place if line is None else Place("shop.py", line))


def test_what_spark_raised_is_told_without_its_package() -> None:
    text = "Proxy\npyspark.errors.exceptions.captured.SparkRuntimeException: [USER_RAISED_EXCEPTION] too large SQLSTATE: P0001\n"
    found = spark_errors.query_failure(Exception(text), cast(Any, FLOW))
    assert found.message == "flow 'copy': SparkRuntimeException: [USER_RAISED_EXCEPTION] too large SQLSTATE: P0001"
