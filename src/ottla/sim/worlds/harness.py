"""How a world with a loop is run: to its end, with the errors that brokers log as failures, and everything buried afterwards."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from ottla.sim.kernel.loop import SimLoop
from ottla.sim.kernel.node import Complaints
from ottla.sim.violation import Violation


def run_to_end(
    loop: SimLoop, complaints: Complaints, main: Callable[[], Coroutine[Any, Any, None]], bury: Callable[[], None]
) -> None:
    """Run `main`; an exception that nobody handled is a violation. `bury` frees every process of the world."""
    with complaints:
        try:
            loop.run_until_complete(main())
            if loop.unhandled:
                raise Violation("unhandled", f"{loop.unhandled[0]}")
        finally:
            bury()
            loop.close()
