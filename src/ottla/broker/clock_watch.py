"""Protects data against a wrong wall clock: compares it with the monotonic clock before anything is deleted by age.

Timestamps, and retention by them, use the wall clock: of records, tombstones, producers, offsets and transactional ids. So do
transaction timeouts, which may end too early, as in Kafka. Sessions and waits use the monotonic clock.

1. After a jump ahead by a minute or more, ages are computed without the jump for one hour, or until the clock is back: if it was
   set wrong, everything would expire at once.
2. A jump back is followed: records only stay longer.
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
        """Wall clock minus monotonic clock, without a jump that is not followed."""
        self._seen_ms = self._ahead_ms
        """The same at the last call, with every jump."""
        self._held_until_ms: int | None = None

    def now_ms(self) -> int:
        """The time to use for retention. Logs a warning if the clock has jumped."""
        ahead_ms, now_ms = self._difference(), self._monotonic_ms()
        jump_ms = ahead_ms - self._seen_ms
        self._seen_ms = ahead_ms
        if jump_ms >= _JUMP_MS and ahead_ms - self._ahead_ms >= _JUMP_MS:
            self._held_until_ms = now_ms + _HELD_MS
            logger.warning(
                "The system clock jumped ahead by %d s: retention ignores the jump for one hour, or until the clock is set back",
                jump_ms // 1000,
            )
        elif jump_ms <= -_JUMP_MS:
            logger.warning("The system clock jumped back by %d s", -jump_ms // 1000)
        if self._held_until_ms is not None and ahead_ms - self._ahead_ms >= _JUMP_MS and now_ms < self._held_until_ms:
            return now_ms + self._ahead_ms
        self._held_until_ms = None
        self._ahead_ms = ahead_ms
        return now_ms + ahead_ms

    def _monotonic_ms(self) -> int:
        return int(self._clock.monotonic() * 1000)

    def _difference(self) -> int:
        return self._clock.now_ms() - self._monotonic_ms()
