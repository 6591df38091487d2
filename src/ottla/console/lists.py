"""Long lists, shown a window at a time: search by name, order, window. Pure."""

from __future__ import annotations

import fnmatch
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from ottla.console.endpoint import Call, Param, bad
from ottla.console.schema import BOOLEAN, INTEGER, STRING, Schema, document, listed, maybe

T = TypeVar("T")
WINDOW_MAX = 1000


@dataclass(frozen=True, slots=True)
class Window:
    """Which rows of a list are asked for, and in which order."""

    search: str | None
    sort: str
    descending: bool
    offset: int
    limit: int
    names: frozenset[str]

    @classmethod
    def of(cls, call: Call, columns: Iterable[str]) -> Window:
        word = call.word("sort") or "name"
        column = word.removeprefix("-")
        if column not in columns:
            raise bad(f"sort={word!r} is none of {', '.join(columns)}")
        return cls(
            call.word("search"),
            column,
            word.startswith("-"),
            call.number("offset", 0),
            call.number("limit", 100, low=1, high=WINDOW_MAX),
            frozenset(call.words("names")),
        )

    def takes(self, name: str) -> bool:
        if self.names and name not in self.names:
            return False
        if self.search is None:
            return True
        wanted = self.search.lower()
        if "*" in wanted or "?" in wanted:
            return fnmatch.fnmatchcase(name.lower(), wanted.replace("[", "[[]"))
        return wanted in name.lower()


PARAMS = (
    Param("search", "A part of the name; * and ? are wildcards", STRING),
    Param("sort", "A column, with - before it for descending order", STRING),
    Param("offset", "Rows to leave out", INTEGER),
    Param("limit", f"Rows to give, at most {WINDOW_MAX}", INTEGER),
    Param("names", "Only these, between commas", STRING),
)


@dataclass(frozen=True, slots=True)
class Page(Generic[T]):
    """A window of a list."""

    total: int
    matched: int
    items: Sequence[T]


def page(
    items: Sequence[T],
    window: Window,
    name: Callable[[T], str],
    column: Callable[[T], Any],
    also: Callable[[T], bool] = lambda item: True,
) -> Page[T]:
    """The items that are asked for. What has no value in the column comes last, in either direction."""
    found = [item for item in items if window.takes(name(item)) and also(item)]
    found.sort(key=name)
    if window.sort == "name":
        ordered = found[::-1] if window.descending else found
    else:
        valued = [(value, item) for item in found if (value := column(item)) is not None]
        valued.sort(key=lambda pair: pair[0], reverse=window.descending)
        ordered = [item for _, item in valued] + [item for item in found if column(item) is None]
    return Page(len(items), len(found), ordered[window.offset : window.offset + window.limit])


def list_schema(row: Schema) -> Schema:
    return document(total=INTEGER, matched=INTEGER, as_of_ms=maybe(INTEGER), complete=BOOLEAN, rows=listed(row))
