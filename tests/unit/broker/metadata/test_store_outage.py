"""Changes of metadata while ZooKeeper is away."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from ottla.broker.metadata.store_outage import CHANGES, GRACE_S, OF_THE_CONTROLLER, StoreOutage
from ottla.errors import ErrorCode, KafkaError
from ottla.ports import SessionEvent
from ottla.protocol.registry import API_BY_NAME


class Session:
    """A store whose session changes, and a clock."""

    now_s = 100.0

    def on_session(self, callback: Callable[[SessionEvent], None]) -> None:
        self.tell = callback

    def monotonic(self) -> float:
        return self.now_s

    def now_ms(self) -> int:
        return 0


def test_changes_are_refused_once_a_store_has_been_away_for_a_while() -> None:
    session: Any = Session()
    outage = StoreOutage(session, session, lambda: True)

    def handle(request: Any, context: Any) -> Any:
        return request, context

    change = outage.guarded("create_topics", handle)
    assert change(1, 2) == (1, 2)
    session.tell(SessionEvent.SUSPENDED)
    session.now_s += GRACE_S
    assert change(1, 2) == (1, 2), "a store that fails over is back soon"
    session.tell(SessionEvent.EXPIRED)
    session.now_s += 10
    with pytest.raises(KafkaError) as refused:
        change(1, 2)
    assert refused.value.code is ErrorCode.REQUEST_TIMED_OUT
    assert refused.value.detail == "ZooKeeper has not answered this broker for 12 s: nothing was changed"
    assert outage.guarded("produce", handle) is handle
    session.tell(SessionEvent.CONNECTED)
    assert change(1, 2) == (1, 2)


def test_a_broker_that_is_not_the_controller_leaves_requests_to_the_controller_to_their_handlers() -> None:
    session: Any = Session()
    outage = StoreOutage(session, session, lambda: False)
    session.tell(SessionEvent.SUSPENDED)
    session.now_s += 10
    assert outage.guarded("delete_topics", lambda request, context: "NOT_CONTROLLER")(1, 2) == "NOT_CONTROLLER"
    with pytest.raises(KafkaError):
        outage.guarded("alter_configs", lambda request, context: None)(1, 2)


def test_the_changes_are_apis() -> None:
    assert API_BY_NAME.keys() >= CHANGES >= OF_THE_CONTROLLER
