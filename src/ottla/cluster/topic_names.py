"""Kafka's rules for topic names."""

from __future__ import annotations

import re
from typing import Final

from ottla.errors import ErrorCode, KafkaError

NAME_LENGTH_MAX: Final = 249
_LEGAL: Final = re.compile(r"[a-zA-Z0-9._-]+", re.ASCII)


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
