"""`ottla elect` while no leader can be elected."""

from __future__ import annotations

from typing import Any, cast

import pytest

from ottla.cli.cluster.view import ClusterView
from ottla.cli.elect import _asked
from ottla.cli.failure import Failure
from ottla.errors import ErrorCode
from ottla.protocol.messages.elect_leaders import ElectLeadersResponse


class View:
    """As much of a `ClusterView` as an election asks."""

    def ask_controller(self, *request: Any) -> ElectLeadersResponse:
        return ElectLeadersResponse(error_code=ErrorCode.REQUEST_TIMED_OUT)

    def why_changes_fail(self) -> str | None:
        return "ZooKeeper has not answered this broker for 9 s"


def test_a_zookeeper_that_is_away_is_named() -> None:
    with pytest.raises(Failure, match="the election: ZooKeeper has not answered this broker for 9 s"):
        _asked(cast(ClusterView, View()), 0, [("t", 0)])
