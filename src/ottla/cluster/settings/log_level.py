"""`ottla.log.level`: a level for all loggers, and levels of single ones, by Kafka's names."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Final

ROOT: Final = "root"
LEVELS: Final = {
    "TRACE": 5,
    "DEBUG": logging.DEBUG,
    "INFO": logging.INFO,
    "WARN": logging.WARNING,
    "ERROR": logging.ERROR,
    "FATAL": logging.CRITICAL,
}


def parse_log_levels(elements: Iterable[str]) -> dict[str, int]:
    """The number of the level by the logger's name. ValueError says what is wrong."""
    levels: dict[str, int] = {}
    for element in elements:
        name, equals, level = element.rpartition("=")
        number = LEVELS.get(level.strip().upper())
        if number is None or (equals and not name.strip()):
            raise ValueError(f"{element} is not allowed; allowed: LEVEL or LOGGER=LEVEL, where a level is {', '.join(LEVELS)}")
        levels[name.strip() or ROOT] = number
    return levels
