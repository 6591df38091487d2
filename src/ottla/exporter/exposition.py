"""The text format of Prometheus (version 0.0.4): families of samples as lines.

Most lines of a page have the labels of many others, and making these texts costs more than the values. So rows come with their
labels as text, made once for all families with the same labels.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

T = TypeVar("T")

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

Value = float | int

_ESCAPES = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})


@dataclass(frozen=True, slots=True)
class Family:
    name: str
    help: str
    labels: tuple[str, ...] = ()
    kind: str = "gauge"


def escaped(value: object) -> str:
    """The value of a label, as it stands between quotes."""
    return str(value).translate(_ESCAPES)


def label_text(names: Sequence[str], values: Sequence[object]) -> str:
    """The labels of a sample with their braces; empty without labels."""
    pairs = ",".join(f'{name}="{escaped(value)}"' for name, value in zip(names, values, strict=True))
    return f"{{{pairs}}}" if pairs else ""


class Page:
    """Collects the families of one page, each once."""

    def __init__(self) -> None:
        self._parts: list[str] = []

    def add(self, family: Family, rows: Iterable[tuple[Sequence[object], Value | None]]) -> None:
        """Rows of (values of the labels, value)."""
        self.add_labelled(family, ((label_text(family.labels, values), value) for values, value in rows), lambda value: value)

    def add_labelled(self, family: Family, rows: Iterable[tuple[str, T]], value: Callable[[T], Value | None]) -> None:
        """Rows of (labels as text, what `value` takes the value from). None: no sample. Nothing is written without samples."""
        name = family.name
        lines = [f"{name}{labels} {found}\n" for labels, each in rows if (found := value(each)) is not None]
        if lines:
            self._parts.append(f"# HELP {name} {family.help}\n# TYPE {name} {family.kind}\n")
            self._parts += lines

    def text(self) -> str:
        return "".join(self._parts)
