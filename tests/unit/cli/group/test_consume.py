"""`ottla consume --group` ends on SIGTERM."""

from __future__ import annotations

import signal

import pytest
from confluent_kafka import Consumer

from ottla.cli.group.consume import terminated


def test_sigterm_during_a_callback_of_the_client_exits_with_143() -> None:
    """The signal may arrive while confluent-kafka calls back: the exception passes through its C code."""
    nowhere = {"bootstrap.servers": "127.0.0.1:1", "group.id": "g", "log_level": 0}
    consumer = Consumer({**nowhere, "error_cb": lambda error: terminated(signal.SIGTERM, None)})
    try:
        consumer.subscribe(["topic"])
        with pytest.raises(SystemExit) as exit_:
            consumer.poll(60)
        assert exit_.value.code == 143
    finally:
        consumer.close()
