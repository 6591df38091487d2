"""How far ahead of its end a log takes room on its volume.

Owns: the rule. Appends into room that the file has already are cheaper on some file systems (`ports.File.reserve`); what is
taken and not needed is given back when the segment is sealed, closed or cut, or rests for a while.

1. A small log takes nothing, any other at most as much again as it has: a thousand partitions must not take more than they hold.
2. Nothing is taken that the segment cannot use, because it is full before.
3. Where little is free, nothing is taken: what one log keeps for later may be what another one's next write needs.
"""

from __future__ import annotations

from typing import Final

from ottla.ports import Disk

BEGIN_BYTES: Final = 1 << 20
"""A segment smaller than this has no room reserved."""
AHEAD_BYTES_MAX: Final = 8 << 20
FREE_BYTES_MIN: Final = 1 << 30
FREE_PART_MIN: Final = 20
"""One in so many of all bytes of the volume."""


def reserve_until(written_bytes: int, segment_bytes: int) -> int:
    """The end of the room that a segment takes once so much is written; not beyond what is written: none."""
    return min(written_bytes + min(written_bytes, AHEAD_BYTES_MAX), segment_bytes)


def is_free_enough(disk: Disk, path: str) -> bool:
    try:
        total_bytes, usable_bytes = disk.usage(path)
    except OSError:
        return False
    return usable_bytes >= max(FREE_BYTES_MIN, total_bytes // FREE_PART_MIN)
