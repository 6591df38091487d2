"""The states of a transaction, and which may follow which.

The numbers stand in the log, the names in the replies of DescribeTransactions and ListTransactions: both are Kafka's.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final


class State(IntEnum):
    EMPTY = 0
    """A producer has its id and epoch, and has written nothing yet."""
    ONGOING = 1
    PREPARE_COMMIT = 2
    """Decided. What is left is to tell the partitions; nothing can stop it."""
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    """All partitions have been told."""
    COMPLETE_ABORT = 5
    DEAD = 6
    """The id has not been used for long and is being forgotten. Never in the log: there a tombstone stands."""
    PREPARE_EPOCH_FENCE = 7
    """The producer is being fenced, by its successor or by time. Never in the log: PREPARE_ABORT follows in the same step."""

    @property
    def title(self) -> str:
        """As the protocol names it."""
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
"""From a state to those that may follow. From EMPTY and COMPLETE_* to PREPARE_ABORT: a producer of transaction version 2 aborts
what it cannot know to have begun."""

PREPARED: Final = frozenset({State.PREPARE_COMMIT, State.PREPARE_ABORT})
IDLE: Final = frozenset({State.EMPTY, State.COMPLETE_COMMIT, State.COMPLETE_ABORT})
"""Nothing is open. Such an id expires when nobody uses it."""
