"""Wait until a condition holds: `until` blocks, `until_async` awaits, `until_done` waits for a call that succeeds.

A condition that holds is returned, so that a test can wait for a value: `leader = until(cluster.controller, "a controller")`.
A test that passes never waits for the timeout, so it is generous: the machine may be busy.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

Ignored = type[Exception] | tuple[type[Exception], ...]

TIMEOUT_S = 90.0


class NotInTimeError(AssertionError):
    """The condition did not hold before the deadline."""


def until(
    condition: Callable[..., Any],
    what: object = "",
    timeout_s: float = TIMEOUT_S,
    *,
    every_s: float = 0.02,
    ignoring: Ignored = (),
    meanwhile: Callable[[], object] = lambda: None,
) -> Any:
    """Return the first true value of `condition`. An exception of the types `ignoring` counts as false.

    `meanwhile` is called before each look at the condition, e.g. to poll a client.
    `what` names the condition in the failure; a callable is called then, e.g. to show a log.
    """
    deadline_s = time.monotonic() + timeout_s
    while True:
        last: object
        try:
            meanwhile()
            value = condition()
            if value:
                return value
            last = value
        except ignoring as error:
            last = error
        if time.monotonic() >= deadline_s:
            raise _not_in_time(condition, what, timeout_s, last)
        time.sleep(every_s)


def until_done(
    work: Callable[[], object], what: object = "", timeout_s: float = TIMEOUT_S, *, every_s: float = 0.02, ignoring: Ignored
) -> None:
    """Call `work` until it raises nothing of the types `ignoring`."""
    until(lambda: True, what, timeout_s, every_s=every_s, ignoring=ignoring, meanwhile=work)


async def until_async(
    condition: Callable[..., Any],
    what: object = "",
    timeout_s: float = TIMEOUT_S,
    *,
    every_s: float = 0.005,
    ignoring: Ignored = (),
) -> Any:
    """As `until`, by the clock of the running loop. The condition may be a coroutine function."""
    loop = asyncio.get_running_loop()
    deadline_s = loop.time() + timeout_s
    while True:
        last: object
        try:
            found = condition()
            value = await found if isinstance(found, Awaitable) else found
            if value:
                return value
            last = value
        except ignoring as error:
            last = error
        if loop.time() >= deadline_s:
            raise _not_in_time(condition, what, timeout_s, last)
        await asyncio.sleep(every_s)


def _not_in_time(condition: object, what: object, timeout_s: float, last: object) -> NotInTimeError:
    said = what() if callable(what) else what
    return NotInTimeError(f"not within {timeout_s:g} s: {said or condition}; last: {last!r}")
