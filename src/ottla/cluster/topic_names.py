"""Which names a topic may have: Kafka's rules."""

from __future__ import annotations

import re
from typing import Final

from ottla.errors import ErrorCode, KafkaError

NAME_LENGTH_MAX: Final = 249
_LEGAL: Final = re.compile(r"[a-zA-Z0-9._-]+", re.ASCII)


def check_topic_name(name: str) -> None:
    """KafkaError INVALID_TOPIC_EXCEPTION unless a topic may be called so."""
    if not name:
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, "a topic's name cannot be empty")
    if name in (".", ".."):
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"a topic cannot be called {name!r}")
    if len(name) > NAME_LENGTH_MAX:
        raise KafkaError(
            ErrorCode.INVALID_TOPIC_EXCEPTION,
            f"the topic's name has {len(name)} characters, more than {NAME_LENGTH_MAX}: {name[:40]}…",
        )
    if not _LEGAL.fullmatch(name):
        raise KafkaError(
            ErrorCode.INVALID_TOPIC_EXCEPTION,
            f"the topic's name {name!r} holds other characters than ASCII letters, digits, '.', '_' and '-'",
        )


def collision_key(name: str) -> str:
    """Names with the same key would have the same metric name, because '.' and '_' become one there."""
    return name.replace(".", "_")
