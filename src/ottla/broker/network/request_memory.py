"""The memory that requests are received into.

Owns one receive buffer for all connections of the loop, a few spare buffers for large frames, and the count of bytes held by
frames that are not complete yet (`queued.max.request.bytes`). Never touches a socket.

A read fills the buffer and is consumed before the next read of any connection, so idle connections cost nothing. Only the rest of
a frame that did not arrive whole, or bytes sent ahead of a reply, are held per connection; they are taken as bytes arrive, not as
lengths claim.

When the bound is reached, frames wait where they are, all but one: whoever comes first may exceed it until its frame is whole.
Else frames that each hold a part and wait for the rest would wait for each other.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from mmap import MAP_ANONYMOUS, MAP_PRIVATE, mmap
from typing import Final

SHARED_BYTES: Final = 512 << 10
"""Enough for the five requests of 64 KB that a producer may have on the way; twice as much measured the same."""
HEAD_ROOM: Final = 4
"""Kept free before the bytes of a read: the start of a length prefix that came with the read before goes there."""
SPARE_BYTES: Final = (1 << 20) + (64 << 10)
"""A default-sized full batch and its request around it."""
SPARES_MAX: Final = 8
LARGE_BYTES: Final = SPARE_BYTES // 4
"""A frame of so many bytes is followed by more of its kind; its buffer has pages of its own, and is kept."""
PEEK_BYTES: Final = 1 << 10
"""So much is read of what may be the next large frame, with the end of the one before it, to know its length; the rest comes
straight to its own buffer, where a read of all that is there would have to be copied."""
GROWTH_START_BYTES: Final = 64 << 10
PAGE_SKEW: Final = 2 << 10
"""Where in its first page a large buffer begins: far from where the sender's bytes begin in theirs. What is sent at once begins a
page of the kernel's; and AMD's processors copy eight times slower to an address that is one to thirty bytes further in its page
than the source is. Memory from malloc is, by 16: that took a third of the system time of a producer's megabytes."""
HELD_BYTES_MAX: Final = 512 << 20
"""The bound where the settings name none: half a gigabyte of half-received requests is no use to anyone."""


def new_buffer(size: int) -> memoryview:
    if size < LARGE_BYTES:
        return memoryview(bytearray(size))
    return memoryview(mmap(-1, PAGE_SKEW + size, flags=MAP_PRIVATE | MAP_ANONYMOUS))[PAGE_SKEW:]


def _next_size(have_bytes: int, frame_bytes: int) -> int:
    """Twice what has come, at most the frame. A large one gets a buffer that can be kept: its like will come again."""
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
        """Whose frame may exceed the bound."""

    @property
    def exhausted(self) -> bool:
        return self.held_bytes >= self.held_bytes_max

    def may_take(self, owner: object) -> bool:
        """Whether more memory for the frame of this owner may be taken now."""
        if not self.exhausted or self._excepted is owner:
            return True
        if self._excepted is None:
            self._excepted = owner
            return True
        return False

    def take(self, frame_bytes: int, have_bytes: int, more: bool = True) -> memoryview:
        """A buffer for a frame of which `have_bytes` are here: to be grown later, or (not `more`) just for those."""
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

    def give_back(self, buffer: memoryview, owner: object) -> None:
        """The owner's frame is whole and used, or will never be."""
        if self._excepted is owner:
            self._excepted = None
        if len(buffer) == SPARE_BYTES and len(self._spares) < SPARES_MAX:
            self._spares.append(buffer)
        self.release(len(buffer))

    def hold(self, count: int) -> None:
        """Count bytes that a connection keeps beyond its frame."""
        self.held_bytes += count

    def release(self, count: int) -> None:
        self.held_bytes -= count
        # One at a time: each that goes on may take what was released.
        while self._queue and (not self.exhausted or self._excepted is None):
            self._queue.popleft()()

    def when_available(self, go_on: Callable[[], None]) -> None:
        """Call back, in order of asking, once memory has been released."""
        self._queue.append(go_on)

    def forget(self, go_on: Callable[[], None]) -> None:
        try:
            self._queue.remove(go_on)
        except ValueError:
            pass
