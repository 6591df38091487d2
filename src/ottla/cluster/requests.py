"""Requests to the controller as plain values; handlers build them from messages."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final

from ottla.errors import ErrorCode, KafkaError

NOT_GIVEN: Final = -1


NAME_LENGTH_MAX: Final = 249
_LEGAL: Final = re.compile(r"[a-zA-Z0-9._-]+", re.ASCII)


class ResourceType(IntEnum):
    """The resource of a config; the numbers are the protocol's."""

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
    """(partition, its brokers), if the client assigns them."""
    config: Mapping[str, str | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class NewPartitions:
    topic: str
    count: int
    """The total number of partitions."""
    assignments: Sequence[tuple[int, ...]] | None = None
    """The brokers of each added partition, if the client assigns them."""


@dataclass(frozen=True, slots=True)
class ConfigChange:
    operation: int
    name: str
    value: str | None
    is_encrypted: bool = False
    """The value is a password that this broker has encrypted: it may be stored."""


@dataclass(frozen=True, slots=True)
class ConfigAlteration:
    resource_type: int
    resource_name: str
    changes: Sequence[ConfigChange]
    replace: bool = False
    """AlterConfigs: a config that is not named is reset to its default."""


@dataclass(frozen=True, slots=True)
class FoundTopic:
    """A topic whose partitions are in the data directories."""

    name: str
    topic_id: bytes | None
    partitions: frozenset[int]


def check_topic_name(name: str) -> None:
    """KafkaError INVALID_TOPIC_EXCEPTION if the name is not allowed."""
    if not name:
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, "a topic name cannot be empty")
    if name in (".", ".."):
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"the topic name {name!r} is not allowed")
    if len(name) > NAME_LENGTH_MAX:
        raise KafkaError(
            ErrorCode.INVALID_TOPIC_EXCEPTION,
            f"the topic name has {len(name)} characters; allowed: up to {NAME_LENGTH_MAX}: {name[:40]}…",
        )
    if not _LEGAL.fullmatch(name):
        raise KafkaError(
            ErrorCode.INVALID_TOPIC_EXCEPTION,
            f"the topic name {name!r} is not allowed; allowed: ASCII letters, digits, '.', '_' and '-'",
        )


def collision_key(name: str) -> str:
    """Names with the same key have the same metric name, in which '.' and '_' are the same."""
    return name.replace(".", "_")
