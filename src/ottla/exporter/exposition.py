"""The text format of Prometheus (version 0.0.4): families of samples as lines."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

Value = float | int
Row = tuple[Sequence[object], Value | None]
"""The values of the labels, and of the sample. None: there is no sample."""

_ESCAPES = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})


@dataclass(frozen=True, slots=True)
class Family:
    name: str
    help: str
    labels: tuple[str, ...] = ()
    kind: str = "gauge"


class Page:
    """Collects the families of one page, each once."""

    def __init__(self) -> None:
        self._lines: list[str] = []

    def add(self, family: Family, rows: Iterable[Row]) -> None:
        """Nothing is written for a family without samples."""
        labels = ",".join(f'{name}="%s"' for name in family.labels)
        template = f"{family.name}{{{labels}}} %s\n" if labels else f"{family.name} %s\n"
        lines = [template % (*(_label(each) for each in values), _number(value)) for values, value in rows if value is not None]
        if lines:
            self._lines.append(f"# HELP {family.name} {family.help}\n# TYPE {family.name} {family.kind}\n")
            self._lines += lines

    def text(self) -> str:
        return "".join(self._lines)


def _label(value: object) -> object:
    return value.translate(_ESCAPES) if isinstance(value, str) else value


def _number(value: Value) -> str:
    return repr(round(value, 6)) if isinstance(value, float) else str(int(value))
