"""Short seeded runs: what CI can afford. `make sim` runs hundreds, `make sim SEED=n` replays one."""

from __future__ import annotations

import gc
import os
import subprocess
import sys

import pytest

from ottla.sim.bugs import BUGS
from ottla.sim.run import find_bug, main, run_seed

SEEDS_AT_ONCE = 10


@pytest.fixture(autouse=True)
def _collect():
    """The runs make cycles of tasks and loops; collected between tests, never in the middle of a run."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.mark.parametrize("first", range(1, 41, SEEDS_AT_ONCE))
def test_every_rule_holds(first):
    for seed in range(first, first + SEEDS_AT_ONCE):
        outcome = run_seed(seed)
        assert not outcome.failed, f"{outcome.rule}: {outcome.detail}; replay: make sim SEED={seed}"
        assert outcome.events > 20, f"seed {seed} did next to nothing"


@pytest.mark.parametrize("seed", [3, 16])
def test_the_same_seed_gives_the_same_trace(seed):
    assert run_seed(seed) == run_seed(seed)
    assert run_seed(seed).digest != run_seed(seed + 1).digest


def test_the_trace_does_not_depend_on_the_process():
    """Nothing comes in but the seed: not the order of sets of strings, not addresses, not the clock."""
    said = []
    for hash_seed in ("1", "2"):
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
        command = [sys.executable, "-m", "ottla.sim", "--seeds", "1-8"]
        result = subprocess.run(command, capture_output=True, text=True, env=environment, check=True)
        said.append(result.stdout.rpartition("traces ")[2])
    assert said[0] == said[1]
    assert said[0].strip()


def _parameters():
    """What needs many clusters to show is looked for when there is time."""
    for name, bug in BUGS.items():
        yield pytest.param(name, marks=[pytest.mark.slow] if bug.world == "cluster" and bug.seeds_max > 20 else [])


@pytest.mark.parametrize("name", _parameters())
def test_a_planted_bug_is_caught(name):
    bug = BUGS[name]
    outcome = find_bug(name, range(1, bug.seeds_max + 1))
    assert outcome is not None, f"{bug.summary}: not caught in {bug.seeds_max} seeds"
    assert outcome.rule not in {"exception", "unhandled", "error"}, f"it fell over, no checker caught it: {outcome.detail}"
    assert outcome.last_events


def test_a_planted_bug_is_gone_afterwards():
    assert find_bug("roll-off-by-one", [1]) is not None
    assert not run_seed(1).failed


def test_a_failing_seed_says_how_to_replay_it(capsys):
    assert main(["--bug", "roll-off-by-one", "--seeds", "1-1", "--world", "log"]) == 1
    said = capsys.readouterr().out
    assert "replay: python -m ottla.sim --seed 1 --world log --bug roll-off-by-one" in said
    assert "append" in said, "the last events are shown"
    assert main(["--bug", "roll-off-by-one", "--seed", "1", "--world", "log", "--quiet"]) == 1
    assert main(["--seed", "1", "--world", "log"]) == 0
    assert "trace " in capsys.readouterr().out
