"""Tasks that write to the same partitions in turns (F79)."""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from ottla.pipelines.sequences import Own, Shared, TurnLost

DIES = """
import os, signal, sys
from ottla.pipelines.sequences import Shared
with Shared(sys.argv[1], {}).turn(0):
    os.kill(os.getpid(), signal.SIGKILL)
"""


def takes_turns(directory: str) -> list[int]:
    found = []
    for _ in range(50):
        with Shared(directory, {}).turn(0) as turn:
            found.append(turn.sequence)
            turn.acknowledged(3)
    return found


def refused(directory: str) -> None:
    with Shared(directory, {1: 4}).turn(1) as turn:
        assert turn.sequence == 4
        raise ValueError("refused")


def test_a_task_counts_for_itself_and_each_partition_apart() -> None:
    own = Own({1: 7})
    for partition, expected in ((0, 0), (1, 7), (0, 5), (1, 12)):
        with own.turn(partition) as turn:
            assert turn.sequence == expected
            turn.acknowledged(5)
    with Own({0: 0x7FFFFFFF}).turn(0) as turn:
        turn.acknowledged(2)
        assert turn.sequence == 1


def test_no_sequence_is_given_twice_or_left_out(tmp_path: Path) -> None:
    with ThreadPoolExecutor(3) as tasks:  # each opens the file anew: to the lock they are as good as processes
        found = list(tasks.map(takes_turns, [str(tmp_path)] * 3))
    assert all(each == sorted(each) for each in found)
    assert sorted(number for each in found for number in each) == list(range(0, 450, 3))
    with Shared(str(tmp_path), {}).turn(1) as turn:
        assert turn.sequence == 0


def test_after_a_task_that_died_in_its_turn_there_is_none(tmp_path: Path) -> None:
    killed = subprocess.run([sys.executable, "-c", DIES, str(tmp_path)], check=False, timeout=120)
    assert killed.returncode == -9
    with pytest.raises(TurnLost, match="partition 0"), Shared(str(tmp_path), {}).turn(0):
        pass
    with pytest.raises(ValueError, match="refused"):
        refused(str(tmp_path))
    with pytest.raises(TurnLost), Shared(str(tmp_path), {}).turn(1):
        pass


def test_a_task_that_comes_when_all_is_over_does_not_begin_anew(tmp_path: Path) -> None:
    """The directory is gone with the attempt it was made for."""
    with pytest.raises(OSError, match="No such file"), Shared(str(tmp_path / "gone"), {}).turn(0):
        pass
