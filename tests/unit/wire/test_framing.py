"""Frames: cut anywhere, never beyond the limit (W04: a hostile length)."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.errors import MalformedInput
from ottla.wire.framing import frame_length, frame_size, split_frames


@settings(derandomize=True, deadline=None, database=None)
@given(st.lists(st.binary(max_size=20), max_size=5), st.integers(0, 200))
def test_frames_come_out_whole_wherever_the_stream_is_cut(frames: list[bytes], cut: int) -> None:
    stream = b"".join(frame_length(len(frame)) + frame for frame in frames)
    first, position = split_frames(memoryview(stream)[:cut], 100)
    rest, end = split_frames(memoryview(stream)[position:], 100)
    assert [bytes(frame) for frame in first + rest] == frames
    assert position + end == len(stream)


@pytest.mark.parametrize("length", ["ffffffff", "80000000", "00000065", "7fffffff"])
def test_a_length_out_of_bounds_is_refused_before_its_bytes_arrive(length: str) -> None:
    with pytest.raises(MalformedInput):
        split_frames(memoryview(bytes.fromhex(length)), 100)


def test_the_limit_itself_is_allowed() -> None:
    assert frame_size(frame_length(100), 0, 4, 100) == 100


def test_a_length_not_yet_whole_is_no_error() -> None:
    assert frame_size(b"\xff\xff\xff", 0, 3, 100) == -1
    assert split_frames(memoryview(b"\x00\x00"), 100) == ([], 0)
