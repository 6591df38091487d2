"""The error that a user of pipelines sees."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Place:
    """A line of a user's file."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


class PipelineError(Exception):
    """What is wrong with a pipeline, the line that declared it if known, and a hint what to do."""

    is_final = False
    """Whether it would not help to start the flow again: another driver has it, or its checkpoint is not its own."""

    def __init__(self, message: str, place: Place | None = None, *, hint: str | None = None) -> None:
        super().__init__(f"{place}: {message}" if place is not None else message)
        self.message = message
        self.place = place
        self.hint = hint


class Superseded(PipelineError):
    """Another version of the pipeline is live, or an upgrade is about to make it live. This driver must end, not try again."""

    is_final = True
