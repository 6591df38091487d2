"""What is asked of the controller, as plain values; the handlers build them from the wire's messages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final

NOT_GIVEN: Final = -1


class ResourceType(IntEnum):
    """What a setting belongs to; the numbers are the wire's."""

    UNKNOWN = 0
    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


class ConfigOperation(IntEnum):
    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


@dataclass(frozen=True, slots=True)
class NewTopic:
    name: str
    partition_count: int = NOT_GIVEN
    replication_factor: int = NOT_GIVEN
    assignments: Sequence[tuple[int, tuple[int, ...]]] = ()
    """(partition, its brokers) where the client chose them."""
    config: Mapping[str, str | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class NewPartitions:
    topic: str
    count: int
    """How many the topic shall have in all."""
    assignments: Sequence[tuple[int, ...]] | None = None
    """The brokers of each added partition, where the client chose them."""


@dataclass(frozen=True, slots=True)
class ConfigChange:
    operation: int
    name: str
    value: str | None


@dataclass(frozen=True, slots=True)
class ConfigAlteration:
    resource_type: int
    resource_name: str
    changes: Sequence[ConfigChange]
    replace: bool = False
    """The old AlterConfigs: what is not named goes back to its default."""


@dataclass(frozen=True, slots=True)
class FoundTopic:
    """A topic whose partitions lie in the data directories."""

    name: str
    topic_id: bytes | None
    partitions: frozenset[int]
