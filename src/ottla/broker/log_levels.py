"""The log levels of this broker, as DescribeConfigs and IncrementalAlterConfigs show them: resource BROKER_LOGGER (KIP-412).

Maps Kafka's level names (TRACE to FATAL) to Python's loggers. A change holds until the process ends. Only the root logger and the
broker's own loggers are shown, not those of libraries.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from ottla.cluster.requests import ConfigChange, ConfigOperation
from ottla.cluster.settings.log_level import LEVELS, ROOT
from ottla.errors import ErrorCode, KafkaError

_OWN: Final = "ottla"
_AUDIT: Final = "kafka.authorizer.logger"


def set_log_levels(levels: Mapping[str, int]) -> None:
    """The levels that the settings give."""
    for name, level in levels.items():
        logging.getLogger(None if name == ROOT else name).setLevel(level)


def log_levels() -> dict[str, str]:
    """The effective level of each logger, by name."""
    return {name: _level_name(logger.getEffectiveLevel()) for name, logger in sorted(_loggers())}


def alter_log_levels(changes: Sequence[ConfigChange], *, validate_only: bool) -> None:
    """Set levels, or reset them to the parent's (DELETE). KafkaError, and nothing changed, if one change is invalid."""
    known = dict(_loggers())
    wanted: list[tuple[logging.Logger, int]] = []
    for change in changes:
        logger = known.get(change.name)
        if logger is None:
            raise KafkaError(ErrorCode.INVALID_CONFIG, f"unknown logger {change.name!r}")
        if change.operation == ConfigOperation.SET:
            level = LEVELS.get(change.value or "")
            if level is None:
                raise KafkaError(
                    ErrorCode.INVALID_CONFIG, f"{change.name}={change.value} is not a log level; allowed: {', '.join(LEVELS)}"
                )
            wanted.append((logger, level))
        elif change.operation == ConfigOperation.DELETE:
            if change.name == ROOT:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "the level of the root logger can be set, but not deleted")
            wanted.append((logger, logging.NOTSET))
        else:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "a log level can only be set or deleted")
    if not validate_only:
        for logger, level in wanted:
            logger.setLevel(level)


def _loggers() -> Iterator[tuple[str, logging.Logger]]:
    yield ROOT, logging.getLogger()
    # Packages too: they have no lines of their own, but give their modules a level.
    for name in list(logging.Logger.manager.loggerDict):
        if name in (_OWN, _AUDIT) or name.startswith(f"{_OWN}."):
            yield name, logging.getLogger(name)


def _level_name(level: int) -> str:
    """Kafka's name of the level, or of the next lower one."""
    below = [name for name, number in LEVELS.items() if number <= level]
    return below[-1] if below else "TRACE"
