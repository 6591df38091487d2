"""Bugs planted in the product are caught. A compiled class keeps its methods: `make test` runs this file on the sources, and
where the product is compiled it is skipped."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.sim.bugs import BUGS, IS_COMPILED, planted
from ottla.sim.run import find_bug, main, run_seed
from ottla.sim.violation import Violation
from tests.sim import test_last_in_sync as last_in_sync

pytestmark = pytest.mark.skipif(IS_COMPILED, reason="bugs are planted in the sources: PYTHONPATH=build/pure, as in `make test`")


SHOWN = {
    "stale-leader-epoch-obeyed": 8,
    "stale-broker-epoch-obeyed": 7,
    "resent-request-obeyed": 7,
    "coordinator-reuses-state": 3,
    "dead-in-isr": 8,
    "stale-isr-change-accepted": 5,
    "writes-not-fenced": 4,
    "commit-not-appended": 13,
    "stale-generation-commits": 29,
    "metadata-truncated": 13,
    "tombstones-not-replayed": 15,
    "offsets-expire-with-members": 15,
    "offsets-never-expire": 15,
    "generation-not-raised": 13,
    "session-never-over": 5,
    "leaders-assignment-for-all": 5,
    "assignment-not-written": 13,
    "revocation-not-awaited": 16,
    "epoch-forgotten": 6,
    "four-batches-remembered": 5,
    "gap-accepted": 6,
    "stale-epoch-writes": 3,
    "snapshots-not-truncated": 116,
    "damaged-snapshot-accepted": 4,
    "follower-producers-not-truncated": 4,
    "coordinator-does-not-wait": 4,
    "shrunk-before-agreed": 4,
    "all-means-one": 3,
    "truncates-to-high-watermark": 6,
    "deposed-says-success": 4,
    "divergence-unnoticed": 4,
    "truncated-too-far": 4,
    "high-watermark-ahead": 5,
    "deleted-log-reused": 50,
    "acls-acknowledged-unread": 2,
    "move-not-flushed": 91,
    "move-stands-still": 7,
    "move-before-caught-up": 7,
    "recovery-skips-crc": 10,
    "clean-marker-kept": 6,
    "epochs-not-truncated": 8,
    "checkpoint-in-place": 6,
    "failed-flush-swallowed": 5,
    "full-disk-swallowed": 8,
    "read-beyond-high-watermark": 11,
    "retention-beyond-high-watermark": 8,
    "deletion-beyond-high-watermark": 6,
    "tombstones-at-once": 21,
    "active-segment-indexed": 11,
    "cleaned-not-flushed": 33,
    "swapped-without-swap": 52,
    "clean-past-lso": 48,
    "prepare-forgotten": 3,
    "timeout-does-not-fence": 16,
    "acl-changes-overwritten": 17,
    "acls-not-read-after-expiry": 14,
    "pending-not-completed": 3,
    "positions-assumed": 3,
    "aborted-replace": 10,
    "truncated-too-late": 5,
    "markers-not-sent": 3,
    "registry-not-fenced": 11,
}
"""The seed that last caught a bug, for bugs that need more than two (`make bugs`). It is tried first, then all seeds are."""


def _seeds(name: Any) -> Any:
    return [SHOWN[name], *BUGS[name].seeds] if name in SHOWN else BUGS[name].seeds


def _parameters() -> Any:
    """Bugs that need many seeds of a cluster are slow."""
    for name, bug in BUGS.items():
        yield pytest.param(name, marks=[pytest.mark.slow] if bug.world == "cluster" and len(bug.seeds) > 40 else [])


@pytest.mark.parametrize("name", list(_parameters()))
def test_a_planted_bug_is_caught(name: Any) -> None:
    bug = BUGS[name]
    outcome = find_bug(name, _seeds(name))
    assert outcome is not None, f"{bug.summary}: not caught in {len(bug.seeds)} seeds"
    assert outcome.rule not in {"exception", "unhandled", "error"}, f"it fell over, no checker caught it: {outcome.detail}"
    assert outcome.last_events


def test_r17_bugs_of_the_last_replica_in_sync_are_caught() -> None:
    """Its story is in no world: the worlds do not allow what it loses."""
    with planted("always-unclean"), pytest.raises(Violation, match="nobody leads"):
        last_in_sync.test_r17_the_last_replica_in_sync_loses_its_unflushed_tail_and_nothing_else(False)
    with planted("divergence-unnoticed"), pytest.raises(AssertionError, match="where the log ends"):
        last_in_sync.test_r17_a_consumer_notices_that_the_tail_is_lost()


def test_a_planted_bug_is_gone_afterwards() -> None:
    assert find_bug("roll-off-by-one", [1]) is not None
    assert not run_seed(1).failed


def test_a_failing_seed_says_how_to_replay_it(capsys: Any) -> None:
    assert main(["--bug", "roll-off-by-one", "--seeds", "1-1", "--world", "log"]) == 1
    said = capsys.readouterr().out
    assert "replay: python -m ottla.sim --seed 1 --world log --bug roll-off-by-one" in said
    assert "append" in said, "the last events are shown"
    assert main(["--bug", "roll-off-by-one", "--seed", "1", "--world", "log", "--quiet"]) == 1
    assert main(["--seed", "1", "--world", "log"]) == 0
    assert "trace " in capsys.readouterr().out
