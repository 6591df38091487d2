"""Measures the time of a handler that waits: of each step of its coroutine, not of the waits between. Not compiled by mypyc."""

from __future__ import annotations

from collections.abc import Coroutine, Generator
from types import coroutine
from typing import Any

from ottla.broker.network.metering import Meter


async def timed(meter: Meter, work: Coroutine[Any, Any, Any]) -> Any:
    return await _steps(meter, work)


@coroutine
def _steps(meter: Meter, work: Coroutine[Any, Any, Any]) -> Generator[Any, Any, Any]:
    step, argument = work.send, None
    while True:
        meter.resume()
        try:
            waits_for = step(argument)
        except StopIteration as done:
            return done.value
        finally:
            meter.suspend()
        try:
            step, argument = work.send, (yield waits_for)
        except BaseException as error:
            step, argument = work.throw, error
