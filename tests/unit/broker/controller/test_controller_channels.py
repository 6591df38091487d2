"""Control requests are delivered in order, sent again until answered, and bounded (F61)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable

import pytest

from ottla.broker.controller import controller_channels
from ottla.broker.controller.controller_channels import ControllerChannels
from ottla.broker.network.inter_broker import PeerUnavailable
from ottla.cluster.control_requests import ControlRequests
from ottla.cluster.image import BrokerImage
from ottla.protocol.messages.leader_and_isr import LeaderAndIsrRequest
from ottla.protocol.messages.stop_replica import StopReplicaRequest
from ottla.protocol.messages.update_metadata import UpdateMetadataRequest
from ottla.protocol.registry import API_BY_NAME

ONE, TWO = BrokerImage(1, 10, None, ()), BrokerImage(2, 20, None, ())


class Brokers:
    def __init__(self) -> None:
        self.deaf: set[int] = set()
        self.heard: list[tuple[int, str, int]] = []
        self.attempts = 0
        self.anew: list[int] = []
        self.channels = ControllerChannels(self.send, lambda *_: None, self.everything)

    async def send(self, broker: BrokerImage, api_name: str, version: int, request: object) -> object:
        self.attempts += 1
        await asyncio.sleep(0)
        if broker.id in self.deaf:
            raise PeerUnavailable("deaf")
        self.heard.append((broker.id, api_name, request.controller_epoch))  # type: ignore[attr-defined]
        return API_BY_NAME[api_name].response()

    def everything(self, number: int) -> Iterable[ControlRequests]:
        self.anew.append(number)
        return [ControlRequests(TWO, update_metadata=UpdateMetadataRequest(controller_epoch=999))]


def run(test: Callable[[Brokers], Awaitable[None]], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(controller_channels, "_PAUSE_S", 0.001)

    async def main() -> None:
        brokers = Brokers()
        await asyncio.wait_for(test(brokers), 60)
        brokers.channels.close()

    asyncio.run(main())


def update(broker: BrokerImage, number: int) -> ControlRequests:
    return ControlRequests(broker, update_metadata=UpdateMetadataRequest(controller_epoch=number))


def test_each_broker_gets_its_requests_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(brokers: Brokers) -> None:
        both = ControlRequests(
            ONE,
            LeaderAndIsrRequest(controller_epoch=1),
            UpdateMetadataRequest(controller_epoch=1),
            StopReplicaRequest(controller_epoch=1),
        )
        brokers.deaf.add(2)
        monkeypatch.setattr(controller_channels, "_FAILURES_MAX", 1_000_000)
        first = brokers.channels.send([both, update(TWO, 1)])
        second = brokers.channels.send([update(ONE, 2), update(TWO, 2)])
        await asyncio.gather(first[1], second[1])
        assert brokers.heard == [
            (1, "leader_and_isr", 1),
            (1, "update_metadata", 1),
            (1, "stop_replica", 1),
            (1, "update_metadata", 2),
        ]
        assert not first[2].done()
        brokers.deaf.clear()
        await second[2]
        assert brokers.heard[4:] == [(2, "update_metadata", 1), (2, "update_metadata", 2)]

    run(test, monkeypatch)


def test_requests_for_a_previous_registration_are_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    """C03."""

    async def test(brokers: Brokers) -> None:
        brokers.deaf.add(2)
        monkeypatch.setattr(controller_channels, "_FAILURES_MAX", 1_000_000)
        former = brokers.channels.send([update(TWO, 1)])[2]
        again = brokers.channels.send([update(BrokerImage(2, 21, None, ()), 2)])[2]
        assert former.cancelled()
        brokers.deaf.clear()
        await again
        assert brokers.heard == [(2, "update_metadata", 2)]

    run(test, monkeypatch)


def test_nobody_waits_for_a_broker_that_cannot_be_reached(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its requests stay queued and are sent when it returns; the acknowledgement does not wait."""

    async def test(brokers: Brokers) -> None:
        brokers.deaf.add(2)
        first = brokers.channels.send([update(ONE, 1), update(TWO, 1)])
        assert [await first[1], await first[2]] == [True, False]
        assert await brokers.channels.send([update(TWO, 2)])[2] is False
        brokers.deaf.clear()
        while len(brokers.heard) < 3:
            await asyncio.sleep(0.001)
        assert brokers.heard[1:] == [(2, "update_metadata", 1), (2, "update_metadata", 2)]
        assert await brokers.channels.send([update(TWO, 3)])[2] is True

    run(test, monkeypatch)


def test_a_broker_that_is_gone_gets_no_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(brokers: Brokers) -> None:
        brokers.deaf.add(2)
        monkeypatch.setattr(controller_channels, "_FAILURES_MAX", 1_000_000)
        waiting = brokers.channels.send([update(TWO, 1)])[2]
        brokers.channels.forget(2)
        assert waiting.cancelled()
        await asyncio.sleep(0.01)
        seen = brokers.attempts
        await asyncio.sleep(0.01)
        assert brokers.attempts == seen

    run(test, monkeypatch)


def test_a_broker_that_lags_gets_its_whole_state_and_its_stop_replica_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(controller_channels, "_QUEUED_MAX", 3)

    async def test(brokers: Brokers) -> None:
        brokers.deaf.add(2)
        brokers.channels.send([update(TWO, 1)])
        brokers.channels.send([ControlRequests(TWO, stop_replica=StopReplicaRequest(controller_epoch=2))])
        dropped = brokers.channels.send([update(TWO, 3)])[2]
        brokers.channels.send([update(TWO, 4)])
        last = brokers.channels.send([update(TWO, 5)])[2]
        assert brokers.anew == [2]
        assert dropped.cancelled()
        brokers.deaf.clear()
        await last
        assert brokers.heard == [(2, "update_metadata", 1), (2, "stop_replica", 2), (2, "update_metadata", 999)]

    run(test, monkeypatch)
