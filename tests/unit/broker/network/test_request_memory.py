"""Memory of requests is taken as bytes arrive, and bounded."""

from __future__ import annotations

import ctypes
import itertools

from ottla.broker.network.request_memory import (
    GROWTH_START_BYTES,
    LARGE_BYTES,
    PAGE_SKEW,
    SPARE_BYTES,
    SPARES_MAX,
    RequestMemory,
    new_buffer,
)

OWNER = object()


def test_a_claimed_length_takes_no_memory() -> None:
    memory = RequestMemory()
    buffer = memory.take(100 << 20, 10)
    assert len(buffer) == GROWTH_START_BYTES
    assert memory.held_bytes == GROWTH_START_BYTES


def test_growing_doubles_keeps_the_bytes_and_stops_at_the_frame() -> None:
    memory = RequestMemory()
    buffer = memory.take(10 << 20, 0)
    buffer[:3] = b"abc"
    sizes = [len(buffer)]
    while len(buffer) < 10 << 20:
        buffer = memory.grow(buffer, 10 << 20)
        sizes.append(len(buffer))
    assert sizes[-1] == 10 << 20
    assert all(after <= 2 * before for before, after in itertools.pairwise(sizes))
    assert bytes(buffer[:3]) == b"abc"
    assert memory.held_bytes == 10 << 20
    memory.release_buffer(buffer, OWNER)
    assert memory.held_bytes == 0


def test_buffers_of_the_usual_size_are_used_again_and_few_are_kept() -> None:
    memory = RequestMemory()
    buffers = [memoryview(bytearray(SPARE_BYTES)) for _ in range(SPARES_MAX + 5)]
    for buffer in buffers:
        memory.hold(SPARE_BYTES)
        memory.release_buffer(buffer, OWNER)
    assert len(memory._spares) == SPARES_MAX
    assert memory.take(1 << 20, 10) in buffers
    assert memory.held_bytes == SPARE_BYTES


def test_large_buffers_begin_in_the_middle_of_a_page() -> None:
    """Not a few bytes behind its beginning, where copies from the kernel's pages are slow."""
    for size in (LARGE_BYTES, SPARE_BYTES, 10 << 20):
        buffer = new_buffer(size)
        assert len(buffer) == size
        assert ctypes.addressof(ctypes.c_char.from_buffer(buffer)) % 4096 == PAGE_SKEW
        assert bytes(buffer[-3:]) == bytes(3)


def test_beyond_the_bound_one_frame_goes_on_and_the_others_wait_in_order() -> None:
    memory = RequestMemory(1000)
    first, second, third = object(), object(), object()
    assert all(memory.may_take(owner) for owner in (first, second, third))
    held = memory.take(2000, 1500)
    assert memory.exhausted
    assert memory.may_take(first), "somebody must be able to finish"
    assert memory.may_take(first)
    assert not memory.may_take(second)
    order: list[str] = []

    def go_on(owner: object, name: str) -> None:
        assert memory.may_take(owner)
        order.append(name)
        memory.hold(1500)

    memory.when_available(lambda: go_on(second, "second"))
    memory.when_available(lambda: go_on(third, "third"))
    memory.release(0)
    assert order == []
    memory.release_buffer(held, first)
    assert order == ["second", "third"] or order == ["second"]
    assert memory.may_take(second) or memory.may_take(third)


def test_who_does_not_wait_any_more_is_not_called() -> None:
    memory = RequestMemory(1)
    memory.hold(10)
    assert memory.may_take(OWNER)

    def never() -> None:
        raise AssertionError

    memory.when_available(never)
    memory.forget(never)
    memory.release(10)
