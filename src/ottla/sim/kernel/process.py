"""What may die in the virtual world.

Owns: the mark that says which process a task, a timer or a transport belongs to, and its death.
Never: cancels a task. A crash runs no `finally` of the dead: their tasks are not resumed, their timers are not called, and what
their ports are asked to do fails with `ProcessDied`.

1. Everything scheduled while a process is current belongs to it, and to what it schedules in turn (a context variable).
2. After `die()` nothing that belongs to it has an effect outside of it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextvars import Context, ContextVar, copy_context
from typing import Any, Final, Protocol, TypeVar

T = TypeVar("T")


class ProcessDied(BaseException):
    """The process that asked is dead. Not an `Exception`: nothing the product catches may take it for a fault it can handle."""


class Resumes(Protocol):
    def resume(self, held: list[asyncio.Handle]) -> None: ...


class Process:
    """One life of one process, from start to crash. A restart is another one."""

    __slots__ = ("alive", "at_death", "held", "name", "paused", "tasks")

    def __init__(self, name: str) -> None:
        self.name = name
        self.alive = True
        self.paused = False
        self.held: list[asyncio.Handle] = []
        """What it would have done while it was paused."""
        self.tasks: list[asyncio.Task[Any]] = []
        self.at_death: list[Callable[[], None]] = []

    def context(self) -> Context:
        """A copy of the present context in which this process is current."""
        context = copy_context()
        context.run(CURRENT.set, self)
        return context

    def check(self) -> None:
        if not self.alive:
            raise ProcessDied(self.name)

    def pause(self) -> None:
        """As SIGSTOP: nothing of it runs until it is resumed; what comes for it waits."""
        self.paused = True

    def resume(self, loop: Resumes) -> None:
        if self.paused:
            self.paused = False
            held, self.held = self.held, []
            loop.resume(held)

    def die(self) -> None:
        """Stop here, wherever "here" is. What the outside notices (closed sockets, released locks) is in `at_death`."""
        if not self.alive:
            return
        self.alive = False
        self.held.clear()
        for callback in self.at_death:
            callback()
        self.at_death.clear()

    def bury(self) -> None:
        """Free what the dead held. Its coroutines are closed here, so that no garbage collector does it at its own time."""
        assert not self.alive, f"{self.name} is alive"
        tasks, self.tasks = self.tasks, []
        for task in tasks:
            task._log_destroy_pending = False  # type: ignore[attr-defined]
            task._log_traceback = False
            coroutine = task.get_coro()
            if coroutine is None or task.done():
                continue
            try:
                coroutine.close()
            except BaseException:  # the dead have no say
                pass


CURRENT: Final[ContextVar[Process | None]] = ContextVar("sim_process", default=None)


def current() -> Process | None:
    return CURRENT.get()
