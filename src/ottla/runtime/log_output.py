"""The log lines of this process: where they go, and in which format.

A file is opened for appending, so that it may be truncated under the process (logrotate's `copytruncate`), and opened again by
`reopen` (`create`). A line that cannot be written, as on a full disk, is dropped; the next one that can says how many were.
"""

from __future__ import annotations

import io
import json
import logging
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final, TextIO

from ottla.types import TopicPartition

TEXT: Final = "text"
JSON: Final = "json"
_TEXT_FORMAT: Final = "%(asctime)s %(levelname)-7s %(message)s"
_CONTROL: Final = {code: f"\\x{code:02x}" for code in (*range(9), *range(10, 32), 127)}

logger = logging.getLogger(__name__)


class LogOutput(logging.StreamHandler[TextIO]):
    """The one handler of the root logger. `path`: None for stderr."""

    def __init__(self, path: str | None, format: str) -> None:
        """OSError if the file cannot be opened."""
        super().__init__(sys.stderr if path is None else _open(path))
        self._path = path
        self._dropped = 0
        self._json = JsonLines() if format == JSON else None
        self.setFormatter(self._json or TextLines(_TEXT_FORMAT))

    def name_broker(self, broker_id: int) -> None:
        """Lines name the broker from now on, if they are JSON."""
        if self._json is not None:
            self._json.broker_id = broker_id

    def reopen(self) -> None:
        """Open the file again: it was renamed. Does nothing for stderr."""
        if self._path is None:
            return
        try:
            old = self.setStream(_open(self._path))
        except OSError as error:
            logger.error("Cannot open the log file %s: %s. Lines go to the old file", self._path, error.strerror)
            return
        if old is not None:
            old.close()
        logger.info("Opened the log file %s again", self._path)

    def close(self) -> None:
        if self._path is not None:
            self.stream.close()
        super().close()

    def emit(self, record: logging.LogRecord) -> None:
        if self._dropped:
            count, self._dropped = self._dropped, 0
            name = __name__
            super().emit(logging.LogRecord(name, logging.ERROR, "", 0, "%d lines before could not be written", (count,), None))
            if self._dropped:
                self._dropped = count  # still none can
        super().emit(record)

    def handleError(self, record: logging.LogRecord) -> None:
        if isinstance(sys.exc_info()[1], OSError):
            self._dropped += 1
        else:
            super().handleError(record)


class TextLines(logging.Formatter):
    """A line for people. Control characters are escaped: clients choose some of the words."""

    def formatMessage(self, record: logging.LogRecord) -> str:
        record.message = record.message.translate(_CONTROL)
        return super().formatMessage(record)


class JsonLines(logging.Formatter):
    """One JSON object a line: time, level, logger, message, and broker, topic, partition, client and exception if it has them."""

    broker_id: int | None = None

    def format(self, record: logging.LogRecord) -> str:
        moment = datetime.fromtimestamp(record.created, UTC)
        fields: dict[str, Any] = {
            "time": moment.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        if self.broker_id is not None:
            fields["broker"] = self.broker_id
        for argument in record.args if isinstance(record.args, tuple) else ():
            fields.update(_fields_of(argument))
        if record.exc_info:
            fields["exception"] = self.formatException(record.exc_info)
        return json.dumps(fields, ensure_ascii=False)


def _fields_of(argument: object) -> Mapping[str, object]:
    """The fields of an argument of the line: a topic-partition, or something with `log_fields`."""
    if isinstance(argument, TopicPartition):
        return {"topic": argument.topic, "partition": argument.partition}
    log_fields = getattr(argument, "log_fields", None)
    return log_fields() if log_fields is not None else {}


def _open(path: str) -> TextIO:
    """Without a buffer: it would keep a line that could not be written, and write it behind later ones."""
    file = open(path, "ab", buffering=0)  # noqa: SIM115  (open as long as the process)
    return io.TextIOWrapper(file, "utf-8", "backslashreplace", write_through=True)
