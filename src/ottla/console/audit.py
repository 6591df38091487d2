"""A line for each change that somebody makes: in the log, in memory for the page, and in a topic of the cluster.

The topic is created with the first change. That it cannot be written is logged and never undoes a change.
"""

from __future__ import annotations

import json
import logging
import time
from collections import deque
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from ottla.cli.connection import Connection, result_of
from ottla.cli.failure import Failure

if TYPE_CHECKING:
    from confluent_kafka import Producer

logger = logging.getLogger("ottla.console.audit")

ENTRIES_MAX: Final = 1000
_TEXT_MAX: Final = 200
_PATIENCE_S: Final = 1.0
_SECRET_WORDS: Final = ("password", "secret", "jaas", "token", "credential", "key.pem", "keystore.key", "passphrase")
_RECORD_PARTS: Final = ("key", "value", "key_base64", "value_base64", "records", "headers")


class Audit:
    def __init__(self, connection: Connection, topic: str | None) -> None:
        self._connection = connection
        self._topic = topic
        self._producer: Producer | None = None
        self._entries: deque[dict[str, Any]] = deque(maxlen=ENTRIES_MAX)

    def latest(self, count: int) -> list[dict[str, Any]]:
        """Newest first."""
        return list(self._entries)[::-1][:count]

    def write(
        self, user: str | None, address: str, action: str, subject: str, detail: Mapping[str, Any], error: str | None
    ) -> None:
        """Blocking. Never fails."""
        entry = {
            "at_ms": int(time.time() * 1000),
            "user": user,
            "address": address,
            "action": action,
            "subject": subject,
            "detail": without_secrets(detail),
            "result": "ok" if error is None else "failed",
            "error": error,
        }
        self._entries.append(entry)
        line = json.dumps(entry, ensure_ascii=False)
        logger.info("%s", line)
        if self._topic is not None:
            self._send(self._topic, line)

    def _send(self, topic: str, line: str) -> None:
        try:
            if self._producer is None:
                self._connection.reach()
                self._ensure(topic)
                self._producer = self._connection.producer()
            self._producer.produce(topic, line.encode())
            # Nobody waits longer for it; the client library goes on trying.
            if self._producer.flush(_PATIENCE_S):
                logger.warning("An audit entry is not in topic %s yet: the cluster does not answer", topic)
        except Exception as error:
            logger.warning("An audit entry cannot be written to topic %s: %s", topic, error)

    def _ensure(self, topic: str) -> None:
        from confluent_kafka.admin import NewTopic

        if topic in self._connection.metadata().topics:
            return
        new = NewTopic(topic, num_partitions=1, config={"retention.ms": "-1", "cleanup.policy": "delete"})
        try:
            result_of(self._connection.admin.create_topics([new])[topic], f"topic {topic}")
        except Failure as failure:
            if failure.code != "TOPIC_ALREADY_EXISTS":
                raise


def without_secrets(detail: Any, name: str = "") -> Any:
    """The detail of a change for an entry: no passwords, no contents of records, nothing long."""
    if any(word in name.lower() for word in _SECRET_WORDS) or name in _RECORD_PARTS:
        return len(detail) if isinstance(detail, list) else "…"
    if isinstance(detail, Mapping):
        return {key: without_secrets(value, str(key)) for key, value in detail.items()}
    if isinstance(detail, list):
        return [without_secrets(each) for each in detail[:100]]
    if isinstance(detail, str) and len(detail) > _TEXT_MAX:
        return detail[:_TEXT_MAX] + "…"
    return detail
