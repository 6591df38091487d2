"""Processes of the virtual world, which may die at any moment.

Owns: which process a task, a timer or a transport belongs to, and its death.
Never: cancels a task. A dead process runs no `finally`: its tasks are not resumed, its timers are not called, and calls of its
ports raise `ProcessDied`.

1. What is scheduled while a process is current belongs to it, and so does what that schedules (a context variable).
2. After `die()` nothing that belongs to the process has an effect outside of it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextvars import Context, ContextVar, copy_context
from typing import Any, Final, Protocol, TypeVar

T = TypeVar("T")


class ProcessDied(BaseException):
    """The process is dead. Not an `Exception`: the product must not catch it and go on."""


class Resumes(Protocol):
    def resume(self, held: list[asyncio.Handle]) -> None: ...


class Process:
    """One process, from start to death. A restart is another one."""

    __slots__ = ("alive", "at_death", "held", "name", "paused", "tasks")

    def __init__(self, name: str) -> None:
        self.name = name
        self.alive = True
        self.paused = False
        self.held: list[asyncio.Handle] = []
        """Callbacks that were due while it was paused."""
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
        """Pause as SIGSTOP does: nothing of it runs until it is resumed."""
        self.paused = True

    def resume(self, loop: Resumes) -> None:
        if self.paused:
            self.paused = False
            held, self.held = self.held, []
            loop.resume(held)

    def die(self) -> None:
        """Die at this point. What others notice (closed sockets, released locks) is in `at_death`."""
        if not self.alive:
            return
        self.alive = False
        self.held.clear()
        for callback in self.at_death:
            callback()
        self.at_death.clear()

    def bury(self) -> None:
        """Free what a dead process held. Coroutines are closed here, so that no garbage collector closes them in a later run."""
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
            except BaseException:  # whatever its `finally` blocks raise
                pass


CURRENT: Final[ContextVar[Process | None]] = ContextVar("sim_process", default=None)


def current() -> Process | None:
    return CURRENT.get()
