"""What is wrong with a pipeline, in the user's words, and where it was written."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Place:
    """A line of a file of the user's."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


class PipelineError(Exception):
    """One sentence that says what is wrong; where there is one, the place, and a second sentence that says what to do."""

    def __init__(self, message: str, place: Place | None = None, *, hint: str | None = None) -> None:
        super().__init__(f"{place}: {message}" if place is not None else message)
        self.message = message
        self.place = place
        self.hint = hint
