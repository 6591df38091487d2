"""The marker of the last micro-batch that is committed, in the offset metadata of the flow's group.

It also says which version of the pipeline is live, and whether an upgrade holds the flow.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

FIRST = "1"
"""The version and the generation of a pipeline that was never upgraded."""
_TEXT = re.compile(r"ottla/1 ([0-9a-f-]+) (\d+) ([0-9a-f]+)(?: version=(\S+) generation=(\S+)(?: hold=(\S+),(\d+))?)?")
NOT_BEGUN = "-"


class Hold(NamedTuple):
    """An upgrade is about to switch the flow to another version: its driver must not go on."""

    version: str
    until_ms: int
    """Until then a starting driver waits for the upgrade. Only politeness depends on it."""


class Marker(NamedTuple):
    query_id: str
    """The identity of the checkpoint: a new checkpoint counts batches from 0 again."""
    batch_id: int
    fingerprint: str
    """Of the batch's offsets: a checkpoint restored from an old copy reuses batch ids for other records."""
    version: str = FIRST
    """Of the pipeline: a number, and from 2 on `-` and letters, so that two attempts of an upgrade differ."""
    generation: str = FIRST
    """Of the flow's checkpoint: the version that began it."""
    hold: Hold | None = None

    def __str__(self) -> str:
        text = f"ottla/1 {self.query_id} {self.batch_id} {self.fingerprint}"
        if (self.version, self.generation, self.hold) == (FIRST, FIRST, None):
            return text
        text += f" version={self.version} generation={self.generation}"
        return text if self.hold is None else f"{text} hold={self.hold.version},{self.hold.until_ms}"


def not_begun(version: str, generation: str) -> Marker:
    """The marker of a flow whose checkpoint has no batch yet."""
    return Marker(NOT_BEGUN, 0, "0", version, generation)


def marker_in(metadata: str) -> Marker | None:
    match = _TEXT.fullmatch(metadata)
    if match is None:
        return None
    hold = Hold(match[6], int(match[7])) if match[6] is not None else None
    return Marker(match[1], int(match[2]), match[3], match[4] or FIRST, match[5] or FIRST, hold)


def number_of(version: str) -> int:
    """What people call the version."""
    number = version.partition("-")[0]
    return int(number) if number.isdecimal() else 0


def is_replaced(version: str, marker: Marker) -> bool:
    """Whether this marker says that another version is live. A flow that an upgrade removed keeps the marker of an older one."""
    return marker.version != version and number_of(marker.version) >= number_of(version)


def live(markers: Iterable[Marker], query_id: str | None = None) -> Marker | None:
    """The marker of the live version. A group may also hold older ones, of topics that the flow no longer reads. Of those of one
    version that of this query is the newest: a new checkpoint counts batches from 0 again."""

    def age(each: Marker) -> tuple[int, bool, bool, int]:
        return number_of(each.version), each.hold is not None, each.query_id == query_id, each.batch_id

    return max(markers, key=age, default=None)
