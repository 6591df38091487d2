"""Bugs planted in the product are caught. They replace methods of its classes, which compiled ones do not allow: `make test` runs
this file on the sources alone, and where the product is compiled it is skipped."""

from __future__ import annotations

import pytest

from ottla.sim.bugs import BUGS, IS_COMPILED
from ottla.sim.run import find_bug, main, run_seed

pytestmark = pytest.mark.skipif(IS_COMPILED, reason="bugs are planted in the sources: PYTHONPATH=build/pure, as in `make test`")


SHOWN = {
    "recovery-skips-crc": 10,
    "clean-marker-kept": 6,
    "epochs-not-truncated": 8,
    "checkpoint-in-place": 6,
    "flush-forgotten": 4,
    "failed-flush-swallowed": 5,
    "full-disk-swallowed": 8,
    "read-beyond-high-watermark": 11,
    "retention-beyond-high-watermark": 8,
    "deletion-beyond-high-watermark": 6,
    "shrunk-before-agreed": 4,
    "positions-assumed": 6,
    "all-means-one": 4,
    "deposed-says-success": 4,
    "truncates-to-high-watermark": 3,
    "divergence-unnoticed": 4,
    "truncated-too-far": 4,
    "follower-producers-not-truncated": 4,
    "high-watermark-ahead": 4,
    "dead-in-isr": 8,
    "markers-not-sent": 3,
    "pending-not-completed": 3,
    "stale-leader-epoch-obeyed": 8,
    "stale-broker-epoch-obeyed": 11,
    "resent-request-obeyed": 20,
    "stale-isr-change-accepted": 5,
    "writes-not-fenced": 8,
    "never-unclean": 9,
    "unclean-keeps-isr": 9,
    "commit-not-appended": 5,
    "stale-generation-commits": 56,
    "metadata-truncated": 5,
    "tombstones-not-replayed": 5,
    "offsets-expire-with-members": 5,
    "offsets-never-expire": 5,
    "generation-not-raised": 5,
    "session-never-over": 5,
    "leaders-assignment-for-all": 5,
    "assignment-not-written": 13,
    "revocation-not-awaited": 16,
    "epoch-forgotten": 6,
    "tombstones-at-once": 13,
    "active-segment-indexed": 11,
    "cleaned-not-flushed": 37,
    "swapped-without-swap": 13,
    "move-not-flushed": 31,
    "move-stands-still": 7,
    "move-before-caught-up": 7,
    "restarted-replica-in-isr": 37,
    "deleted-log-reused": 50,
    "coordinator-reuses-state": 3,
    "coordinator-does-not-wait": 4,
    "snapshots-not-truncated": 116,
    "damaged-snapshot-accepted": 4,
    "gap-accepted": 6,
    "timeout-does-not-fence": 18,
    "pending-offsets-visible": 6,
    "aborted-offsets-count": 6,
}
"""Where bugs that take more than two seeds were last seen (`make bugs`). Looked at first; should they show elsewhere by now, all
seeds are."""


def _seeds(name):
    return [SHOWN[name], *BUGS[name].seeds] if name in SHOWN else BUGS[name].seeds


def _parameters():
    """What needs many clusters to show is looked for when there is time."""
    for name, bug in BUGS.items():
        yield pytest.param(name, marks=[pytest.mark.slow] if bug.world == "cluster" and len(bug.seeds) > 40 else [])


@pytest.mark.parametrize("name", list(_parameters()))
def test_a_planted_bug_is_caught(name):
    bug = BUGS[name]
    outcome = find_bug(name, _seeds(name))
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
