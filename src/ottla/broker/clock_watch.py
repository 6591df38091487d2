"""Whether the machine's clock can be believed: it is held against the one that only counts.

Owns: what is said when the clock jumps, and for how long nothing is thrown away by it afterwards. Sessions and waits never go by
the clock that jumps. What does are timestamps and retention by them: of records, tombstones, producers, offsets, transactional
ids; and timeouts of transactions, which may end too soon, as in Kafka, and are aborted then.

1. After a jump ahead by a minute or more, the age of what is kept is counted for an hour as if it had not been, or until the
   clock is back: if somebody set it wrong, all of it would be too old at once.
2. A jump back is believed: records only stay longer.
"""

from __future__ import annotations

import logging
from typing import Final

from ottla.ports import Clock

logger = logging.getLogger(__name__)

_JUMP_MS: Final = 60_000
_HELD_MS: Final = 3_600_000


class ClockWatch:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._ahead_ms = self._difference()
        """How far the clock is ahead of the one that only counts, as long as it is believed."""
        self._heard_ms = self._ahead_ms
        """The same when somebody last looked."""
        self._held_until_ms: int | None = None

    def now_ms(self) -> int:
        """The time by which records may be thrown away. Says what is to be said of the clock."""
        ahead_ms, now_ms = self._difference(), self._counted()
        jump_ms = ahead_ms - self._heard_ms
        self._heard_ms = ahead_ms
        if jump_ms >= _JUMP_MS and ahead_ms - self._ahead_ms >= _JUMP_MS:
            self._held_until_ms = now_ms + _HELD_MS
            logger.warning(
                "the clock of this machine jumped ahead by %d s: for an hour, or until it is put back, the age of records is "
                "counted as if it had not",
                jump_ms // 1000,
            )
        elif jump_ms <= -_JUMP_MS:
            logger.warning("the clock of this machine jumped back by %d s", -jump_ms // 1000)
        if self._held_until_ms is not None and ahead_ms - self._ahead_ms >= _JUMP_MS and now_ms < self._held_until_ms:
            return now_ms + self._ahead_ms
        self._held_until_ms = None
        self._ahead_ms = ahead_ms
        return now_ms + ahead_ms

    def _counted(self) -> int:
        return int(self._clock.monotonic() * 1000)

    def _difference(self) -> int:
        return self._clock.now_ms() - self._counted()
