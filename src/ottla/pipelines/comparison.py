"""The difference between what two versions of a flow write. Pure: knows rows, not where they come from.

Results are multisets: the order of rows does not count, their number does. Rows that both sides have are the same. Of the
others, an old and a new row with the same key are one changed row: those whose values have most in common first. Rows without a
key cannot be matched: they are only in one side.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

SAMPLE_MAX = 20
_PAIRED_MAX = 50
"""Above so many rows of one key they are paired in order: to compare each with each would take too long."""


class Row(NamedTuple):
    key: bytes | None
    value: bytes | None
    rest: tuple[object, ...] = ()
    """Headers, partition and timestamp, if the sink names them."""


class RowChange(NamedTuple):
    """A row that only one side has, or that differs: None is the side without it."""

    old: Row | None
    new: Row | None

    @property
    def kind(self) -> str:
        return "only old" if self.new is None else "only new" if self.old is None else "changed"

    def fields(self) -> dict[str, tuple[object, object]] | None:
        """The fields that differ, as (old, new); None if the values are no JSON objects or one side has no row."""
        old, new = (_object(row) for row in self)
        if old is None or new is None:
            return None
        return {name: (old.get(name), new.get(name)) for name in {**old, **new} if old.get(name) != new.get(name)}


@dataclass
class Difference:
    same: int = 0
    changed: int = 0
    only_old: int = 0
    only_new: int = 0
    sample: list[RowChange] = field(default_factory=list)

    @property
    def is_empty(self) -> bool:
        return not (self.changed or self.only_old or self.only_new)

    @property
    def old(self) -> int:
        return self.same + self.changed + self.only_old

    @property
    def new(self) -> int:
        return self.same + self.changed + self.only_new


def compare(old: Iterable[Row], new: Iterable[Row], sample_max: int = SAMPLE_MAX) -> Difference:
    """The difference. Its sample has each kind of change, if there is one."""
    counts = Counter(old)
    kept = counts.total()
    counts.subtract(new)
    found = Difference()
    apart: dict[bytes | None, tuple[list[Row], list[Row]]] = defaultdict(lambda: ([], []))
    missing = 0
    for row, count in counts.items():
        if count:
            apart[row.key][count < 0].extend([row] * abs(count))
            missing += max(count, 0)
    found.same = kept - missing
    samples: dict[str, list[RowChange]] = defaultdict(list)
    for key, (before, after) in sorted(apart.items(), key=lambda item: (item[0] is None, item[0] or b"")):
        for change in _paired(before, after) if key is not None else _unpaired(before, after):
            if change.kind == "changed":
                found.changed += 1
            elif change.kind == "only old":
                found.only_old += 1
            else:
                found.only_new += 1
            if len(samples[change.kind]) < sample_max:
                samples[change.kind].append(change)
    found.sample = _shared(list(samples.values()), sample_max)
    return found


def _shared(kinds: list[list[RowChange]], sample_max: int) -> list[RowChange]:
    """At most so many: as many of each kind, and more of one if another has fewer."""
    chosen: list[RowChange] = []
    kinds.sort(key=len)
    for number, kind in enumerate(kinds):
        chosen += kind[: (sample_max - len(chosen)) // (len(kinds) - number)]
    return sorted(chosen, key=lambda change: ("changed", "only old", "only new").index(change.kind))


def _unpaired(before: list[Row], after: list[Row]) -> list[RowChange]:
    return [
        *(RowChange(row, None) for row in sorted(before, key=_order)),
        *(RowChange(None, row) for row in sorted(after, key=_order)),
    ]


def _paired(before: list[Row], after: list[Row]) -> list[RowChange]:
    before, after = sorted(before, key=_order), sorted(after, key=_order)
    if len(before) * len(after) > _PAIRED_MAX:
        pairs = list(zip(before, after, strict=False))
        return [*(RowChange(*pair) for pair in pairs), *_unpaired(before[len(pairs) :], after[len(pairs) :])]
    likeness = sorted(
        ((_common(old, new), -one, -other) for one, old in enumerate(before) for other, new in enumerate(after)), reverse=True
    )
    taken: dict[int, int] = {}
    for _, one, other in likeness:
        if -one not in taken and -other not in taken.values():
            taken[-one] = -other
    changes = [RowChange(before[one], after[other]) for one, other in sorted(taken.items())]
    rest = [row for number, row in enumerate(before) if number not in taken]
    return [*changes, *_unpaired(rest, [row for number, row in enumerate(after) if number not in taken.values()])]


def _common(old: Row, new: Row) -> int:
    one, other = _object(old), _object(new)
    if one is None or other is None:
        return 0
    return sum(name in other and other[name] == value for name, value in one.items())


def _order(row: Row) -> tuple[bytes, str]:
    return row.value or b"", repr(row.rest)


def _object(row: Row | None) -> dict[str, Any] | None:
    try:
        found = None if row is None or row.value is None else json.loads(row.value)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None
