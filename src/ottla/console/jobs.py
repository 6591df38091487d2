"""Long changes that go on when the page is closed: replays of dead letters. Kept in memory, the last `JOBS_MAX`."""

from __future__ import annotations

import itertools
import secrets
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from ottla.cli.failure import Failure
from ottla.console.failures import as_failure, error_document
from ottla.console.schema import INTEGER, OBJECT, STRING, document, maybe, one_of

JOBS_MAX: Final = 100
RUNNING, DONE, FAILED, CANCELLED = "running", "done", "failed", "cancelled"

JOB = document(
    job=STRING,
    what=STRING,
    state=one_of(RUNNING, DONE, FAILED, CANCELLED),
    done=INTEGER,
    all=maybe(INTEGER),
    detail=OBJECT,
    error=maybe(OBJECT),
)


@dataclass(slots=True)
class Job:
    what: str
    user: str | None = None
    """Who started it. None: nobody has a name here."""
    all: int | None = None
    done: Callable[[], int] = lambda: 0
    detail: Callable[[], dict[str, Any]] = dict
    stop: Callable[[], object] = lambda: None
    state: str = RUNNING
    error: dict[str, Any] | None = None
    cancelled: bool = False
    id: str = field(default_factory=lambda: secrets.token_hex(8))

    def document(self) -> dict[str, Any]:
        return {
            "job": self.id,
            "what": self.what,
            "state": self.state,
            "done": self.done(),
            "all": self.all,
            "detail": self.detail(),
            "error": self.error,
        }

    def cancel(self) -> None:
        self.cancelled = True
        self.stop()


class Jobs:
    def __init__(self) -> None:
        self._jobs: dict[str, Job] = {}

    def start(self, job: Job, work: Callable[[Job], object]) -> Job:
        def body() -> None:
            try:
                work(job)
            except Exception as error:
                failure = as_failure(error) or Failure(f"{type(error).__name__}: {error}", code="INTERNAL")
                job.error, job.state = error_document(failure)["error"], FAILED
            else:
                job.state = CANCELLED if job.cancelled else DONE

        self._jobs[job.id] = job
        ended = (each.id for each in self._jobs.values() if each.state != RUNNING)
        for old in list(itertools.islice(ended, max(0, len(self._jobs) - JOBS_MAX))):
            del self._jobs[old]
        threading.Thread(target=body, name=f"ottla-console-{job.what}", daemon=True).start()
        return job

    def find(self, name: str, user: str | None = None) -> Job:
        """A job of this user; None: of anybody."""
        found = self._jobs.get(name)
        if found is None or user not in (None, found.user):
            raise Failure(f"there is no job {name}", "jobs are forgotten when the console ends", code="NOT_FOUND")
        return found

    def all(self, user: str | None = None) -> list[Job]:
        """The jobs of this user, or of everybody. The newest is first."""
        return [job for job in self._jobs.values() if user in (None, job.user)][::-1]
