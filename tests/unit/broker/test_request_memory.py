"""Memory of requests is taken as bytes arrive, and bounded."""

from __future__ import annotations

from ottla.broker.request_memory import GROWTH_START_BYTES, SPARE_BYTES, SPARES_MAX, RequestMemory


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
    assert all(after <= 2 * before for before, after in zip(sizes, sizes[1:], strict=False))
    assert bytes(buffer[:3]) == b"abc"
    assert memory.held_bytes == 10 << 20
    memory.give_back(buffer)
    assert memory.held_bytes == 0


def test_buffers_of_the_usual_size_are_used_again_and_few_are_kept() -> None:
    memory = RequestMemory()
    buffers = [bytearray(SPARE_BYTES) for _ in range(SPARES_MAX + 5)]
    for buffer in buffers:
        memory.hold(SPARE_BYTES)
        memory.give_back(buffer)
    assert len(memory._spares) == SPARES_MAX
    assert memory.take(1 << 20, 10) in buffers
    assert memory.held_bytes == SPARE_BYTES


def test_who_waits_for_memory_goes_on_in_order_when_some_is_released() -> None:
    memory = RequestMemory(1000)
    memory.hold(1500)
    assert memory.exhausted
    order: list[str] = []

    def go_on(name: str) -> None:
        order.append(name)
        memory.hold(600)

    memory.when_available(lambda: go_on("first"))
    memory.when_available(lambda: go_on("second"))
    memory.when_available(lambda: go_on("third"))
    memory.release(300)
    assert order == [], "still above the bound"
    memory.release(700)
    assert order == ["first"] or order == ["first", "second"]
    assert memory.held_bytes >= 1000 or not memory._queue
