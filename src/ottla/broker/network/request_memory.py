"""The memory that requests are received into.

Owns one receive buffer shared by all connections, a few spare buffers for large frames, and the count of bytes that incomplete
frames hold (`queued.max.request.bytes`). Never touches a socket.

A read fills the shared buffer and is consumed before the next read of any connection, so idle connections cost nothing. Only
incomplete frames, and bytes received before a response is sent, are held per connection. Memory is taken as bytes arrive, not as
a length prefix claims.

At the limit all frames but one wait: the first may exceed the limit until it is complete. Otherwise incomplete frames would wait
for each other.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from mmap import MAP_ANONYMOUS, MAP_PRIVATE, mmap
from typing import Final

SHARED_BYTES: Final = 512 << 10
"""Five requests of 64 KB, as a producer may have in flight; twice as much measured the same."""
HEAD_ROOM: Final = 4
"""Free space before the bytes of a read, for the start of a length prefix that came with the previous read."""
SPARE_BYTES: Final = (1 << 20) + (64 << 10)
"""A full batch of the default size with its request."""
SPARES_MAX: Final = 8
LARGE_BYTES: Final = SPARE_BYTES // 4
"""From this size on a buffer has pages of its own and is kept as a spare: more such frames follow."""
PEEK_BYTES: Final = 1 << 10
"""How much is read beyond the end of a large frame: enough to know the length of the next one, whose bytes then go directly to
its own buffer instead of being copied."""
GROWTH_START_BYTES: Final = 64 << 10
PAGE_SKEW: Final = 2 << 10
"""Offset of a large buffer in its first page. AMD processors copy eight times slower if the target is 1 to 30 bytes further in
its page than the source. The kernel's bytes start at a page; memory from malloc is 16 bytes further, which took a third of the
system time of large produce requests."""
HELD_BYTES_MAX: Final = 512 << 20
"""The limit if `queued.max.request.bytes` sets none."""


def new_buffer(size: int) -> memoryview:
    if size < LARGE_BYTES:
        return memoryview(bytearray(size))
    return memoryview(mmap(-1, PAGE_SKEW + size, flags=MAP_PRIVATE | MAP_ANONYMOUS))[PAGE_SKEW:]


def _next_size(have_bytes: int, frame_bytes: int) -> int:
    """Twice what has arrived, at most the frame; a large frame gets the size of a spare."""
    size = min(frame_bytes, max(GROWTH_START_BYTES, 2 * have_bytes))
    return SPARE_BYTES if size >= LARGE_BYTES and frame_bytes <= SPARE_BYTES else size


class RequestMemory:
    def __init__(self, held_bytes_max: int = -1) -> None:
        self.shared = new_buffer(SHARED_BYTES)
        self.shared_tail = self.shared[HEAD_ROOM:]
        self.shared_peek = self.shared[HEAD_ROOM : HEAD_ROOM + PEEK_BYTES]
        self.held_bytes = 0
        self.held_bytes_max = held_bytes_max if held_bytes_max > 0 else HELD_BYTES_MAX
        self._spares: list[memoryview] = []
        self._queue: deque[Callable[[], None]] = deque()
        self._excepted: object | None = None
        """The owner of the frame that may exceed the limit."""

    @property
    def exhausted(self) -> bool:
        return self.held_bytes >= self.held_bytes_max

    def may_take(self, owner: object) -> bool:
        """Whether the frame of this owner may take more memory now."""
        if not self.exhausted or self._excepted is owner:
            return True
        if self._excepted is None:
            self._excepted = owner
            return True
        return False

    def take(self, frame_bytes: int, have_bytes: int, more: bool = True) -> memoryview:
        """A buffer for a frame of which `have_bytes` have arrived: to grow later, or (not `more`) only for those."""
        if frame_bytes <= SPARE_BYTES and self._spares:
            buffer = self._spares.pop()
        elif more:
            buffer = new_buffer(_next_size(have_bytes, frame_bytes))
        else:
            buffer = new_buffer(have_bytes)
        self.held_bytes += len(buffer)
        return buffer

    def grow(self, buffer: memoryview, frame_bytes: int) -> memoryview:
        """The same bytes in a buffer of twice the size, or of the frame's size if that is less."""
        larger = new_buffer(_next_size(len(buffer), frame_bytes))
        larger[: len(buffer)] = buffer
        self.held_bytes += len(larger) - len(buffer)
        return larger

    def release_buffer(self, buffer: memoryview, owner: object) -> None:
        """The owner's frame is consumed or dropped."""
        if self._excepted is owner:
            self._excepted = None
        if len(buffer) == SPARE_BYTES and len(self._spares) < SPARES_MAX:
            self._spares.append(buffer)
        self.release(len(buffer))

    def hold(self, count: int) -> None:
        """Count bytes that a connection holds beyond its frame."""
        self.held_bytes += count

    def release(self, count: int) -> None:
        self.held_bytes -= count
        # One at a time: each may take what was released.
        while self._queue and (not self.exhausted or self._excepted is None):
            self._queue.popleft()()

    def when_available(self, go_on: Callable[[], None]) -> None:
        """Call `go_on` when memory is released, in the order of these calls."""
        self._queue.append(go_on)

    def forget(self, go_on: Callable[[], None]) -> None:
        try:
            self._queue.remove(go_on)
        except ValueError:
            pass
