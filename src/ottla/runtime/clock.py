"""`ports.Clock` and `ports.Random` on the operating system's clocks and random numbers."""

from __future__ import annotations

import os
import time
from collections.abc import Callable


class SystemClock:
    def __init__(self) -> None:
        self.monotonic: Callable[[], float] = time.monotonic
        """The function itself: every measured request calls it, and a method around it would double its cost."""

    def now_ms(self) -> int:
        return int(time.time() * 1000)  # half the cost of dividing nanoseconds


class SystemRandom:
    """The operating system's generator: ids made from it are unique across restarts and machines."""

    def bytes(self, count: int) -> bytes:
        return os.urandom(count)

    def below(self, limit: int) -> int:
        if limit <= 0:
            raise ValueError(f"limit must be positive, not {limit}")
        # 64 bits more than the limit needs make the bias of the remainder negligible.
        return int.from_bytes(os.urandom((limit.bit_length() + 7) // 8 + 8), "big") % limit
