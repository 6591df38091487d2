"""Bugs planted in the product are caught. They replace methods of its classes, which compiled ones do not allow: `make test` runs
this file on the sources alone, and where the product is compiled it is skipped."""

from __future__ import annotations

import pytest

from ottla.sim.bugs import BUGS, IS_COMPILED
from ottla.sim.run import find_bug, main, run_seed

pytestmark = pytest.mark.skipif(IS_COMPILED, reason="bugs are planted in the sources: PYTHONPATH=build/pure, as in `make test`")


def _parameters():
    """What needs many clusters to show is looked for when there is time."""
    for name, bug in BUGS.items():
        yield pytest.param(name, marks=[pytest.mark.slow] if bug.world == "cluster" and len(bug.seeds) > 20 else [])


@pytest.mark.parametrize("name", list(_parameters()))
def test_a_planted_bug_is_caught(name):
    bug = BUGS[name]
    outcome = find_bug(name, bug.seeds)
    assert outcome is not None, f"{bug.summary}: not caught in {len(bug.seeds)} seeds"
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
