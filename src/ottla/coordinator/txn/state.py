"""The states of a transaction and their transitions.

The numbers are in the log, the names in DescribeTransactions and ListTransactions. Both are Kafka's.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final


class State(IntEnum):
    EMPTY = 0
    """The producer has its id and epoch and has written nothing yet."""
    ONGOING = 1
    PREPARE_COMMIT = 2
    """Decided. The markers are still to be written."""
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    """All markers are written."""
    COMPLETE_ABORT = 5
    DEAD = 6
    """The id expires. Never in the log, which has a tombstone."""
    PREPARE_EPOCH_FENCE = 7
    """The producer is being fenced, by a new one or by the timeout. Never in the log: PREPARE_ABORT follows in the same step."""

    @property
    def title(self) -> str:
        """The name in responses."""
        return _TITLES[self]


_TITLES: Final = {state: "".join(word.capitalize() for word in state.name.split("_")) for state in State}
STATE_BY_TITLE: Final = {title: state for state, title in _TITLES.items()}

TRANSITIONS: Final[dict[State, frozenset[State]]] = {
    State.EMPTY: frozenset({State.EMPTY, State.ONGOING, State.PREPARE_ABORT, State.DEAD}),
    State.ONGOING: frozenset({State.ONGOING, State.PREPARE_COMMIT, State.PREPARE_ABORT, State.PREPARE_EPOCH_FENCE}),
    State.PREPARE_COMMIT: frozenset({State.COMPLETE_COMMIT}),
    State.PREPARE_ABORT: frozenset({State.COMPLETE_ABORT}),
    State.COMPLETE_COMMIT: frozenset({State.EMPTY, State.ONGOING, State.PREPARE_ABORT, State.DEAD}),
    State.COMPLETE_ABORT: frozenset({State.EMPTY, State.ONGOING, State.PREPARE_ABORT, State.DEAD}),
    State.DEAD: frozenset(),
    State.PREPARE_EPOCH_FENCE: frozenset({State.PREPARE_ABORT}),
}
"""State -> next states. EMPTY and COMPLETE_* may become PREPARE_ABORT: with transaction version 2 a producer also aborts when it
does not know whether its transaction has begun."""

PREPARED: Final = frozenset({State.PREPARE_COMMIT, State.PREPARE_ABORT})
IDLE: Final = frozenset({State.EMPTY, State.COMPLETE_COMMIT, State.COMPLETE_ABORT})
"""No transaction is open. An unused id expires in these states."""
