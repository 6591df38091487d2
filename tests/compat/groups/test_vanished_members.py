"""What a classic group does about members that vanish while a rebalance is under way: Apache Kafka 4.3's rules (G01).

A coordinator never looks at connections. It waits for each member it knows, and for each id it gave out, until the session
timeout of that member has passed. So a group whose members die while they join stands still for as long as their sessions
last, in Kafka as here.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import count
from typing import Any

import pytest

from ottla.client.connection import ClientConnection
from ottla.errors import ErrorCode
from ottla.metrics import Counters
from ottla.protocol.messages.find_coordinator import FindCoordinatorRequest
from ottla.protocol.messages.heartbeat import HeartbeatRequest
from ottla.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from ottla.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from ottla.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from ottla.runtime.loop import run
from ottla.runtime.network import RealNetwork
from tests.kit.subject import EITHER, Subject, running
from tests.kit.wait import until_async

LONG_MS = 600_000
SHORT_MS = 1_000
WAITS_S = 0.5
"""How long an answer that must not come is waited for."""
_groups = (f"vanishing-{number}" for number in count())


@pytest.fixture(scope="module", params=EITHER)
def subject(request: pytest.FixtureRequest) -> Iterator[Subject]:
    with running(request.param, group_initial_rebalance_delay_ms=0, group_min_session_timeout_ms=100) as broker:
        yield broker


@dataclass
class Member:
    connection: ClientConnection
    group: str
    session_ms: int
    id: str = ""

    async def join(self) -> JoinGroupResponse:
        request = JoinGroupRequest(
            group_id=self.group,
            session_timeout_ms=self.session_ms,
            rebalance_timeout_ms=LONG_MS,
            member_id=self.id,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
        )
        answer: JoinGroupResponse = await self.connection.call("join_group", 5, request)
        self.id = answer.member_id or self.id
        return answer

    async def enter(self) -> JoinGroupResponse:
        """Take an id, and join with it."""
        assert (await self.join()).error_code == ErrorCode.MEMBER_ID_REQUIRED
        return await self.join()

    async def sync(self, generation: int) -> int:
        assignments = [SyncGroupRequestAssignment(member_id=self.id, assignment=b"")]
        request = SyncGroupRequest(group_id=self.group, generation_id=generation, member_id=self.id, assignments=assignments)
        return int((await self.connection.call("sync_group", 3, request)).error_code)

    async def heartbeat(self, generation: int) -> int:
        request = HeartbeatRequest(group_id=self.group, generation_id=generation, member_id=self.id)
        return int((await self.connection.call("heartbeat", 3, request)).error_code)

    async def leave(self, member_id: str) -> None:
        request = LeaveGroupRequest(group_id=self.group, members=[MemberIdentity(member_id=member_id)])
        assert (await self.connection.call("leave_group", 3, request)).error_code == 0

    def vanish(self) -> None:
        self.connection.close()


@asynccontextmanager
async def members(subject: Subject, *session_ms: int) -> AsyncIterator[list[Member]]:
    """Of one group; the first is its stable leader, in generation 1."""
    group = next(_groups)
    opened = [await ClientConnection.open(RealNetwork(Counters()), subject.host, subject.port) for _ in session_ms]
    party = [Member(connection, group, each) for connection, each in zip(opened, session_ms, strict=True)]

    async def is_ready() -> bool:
        found = await opened[0].call("find_coordinator", 4, FindCoordinatorRequest(key_type=0, coordinator_keys=[group]))
        return bool(found.coordinators[0].error_code == 0)

    try:
        await until_async(is_ready, "the group has a coordinator")

        async def entered() -> bool:
            answer = await party[0].join()  # NOT_COORDINATOR while the coordinator loads
            return answer.error_code == ErrorCode.MEMBER_ID_REQUIRED

        await until_async(entered, "an id")
        assert (await party[0].join()).generation_id == 1
        assert await party[0].sync(1) == 0
        yield party
    finally:
        for connection in opened:
            connection.close()


async def is_answered(task: asyncio.Task[Any]) -> bool:
    done, _ = await asyncio.wait([task], timeout=WAITS_S)
    return bool(done)


def test_an_id_that_was_given_out_and_is_not_used_holds_up_a_rebalance(subject: Subject) -> None:
    async def main() -> None:
        async with members(subject, LONG_MS, LONG_MS, SHORT_MS) as (stable, vanished, short):
            assert (await vanished.join()).error_code == ErrorCode.MEMBER_ID_REQUIRED
            vanished.vanish()
            rejoin = asyncio.ensure_future(stable.join())
            assert not await is_answered(rejoin)
            await short.leave(vanished.id)
            assert (await rejoin).generation_id == 2
            assert await stable.sync(2) == 0

            # Nobody takes this one back: the session timeout that the id was asked with does.
            assert (await short.join()).error_code == ErrorCode.MEMBER_ID_REQUIRED
            short.vanish()
            assert (await stable.join()).generation_id == 3

    run(main())


def test_a_member_that_vanished_while_its_join_waited_counts_as_joined_and_expires_later(subject: Subject) -> None:
    async def main() -> None:
        async with members(subject, LONG_MS, SHORT_MS) as (stable, vanished):
            assert (await vanished.join()).error_code == ErrorCode.MEMBER_ID_REQUIRED
            waiting = asyncio.ensure_future(vanished.join())
            await until_async(lambda: _is_rebalancing(stable, 1), "the join has arrived")
            vanished.vanish()
            await asyncio.wait([waiting])
            waiting.exception()
            answer = await stable.join()
            assert answer.generation_id == 2
            assert {member.member_id for member in answer.members} == {stable.id, vanished.id}
            assert await stable.sync(2) == 0
            await until_async(lambda: _is_rebalancing(stable, 2), "it expires")
            answer = await stable.join()
            assert [member.member_id for member in answer.members] == [stable.id]

    run(main())


def test_a_member_that_vanished_before_it_rejoined_is_waited_for_until_its_session_ends(subject: Subject) -> None:
    async def main() -> None:
        async with members(subject, LONG_MS, LONG_MS, LONG_MS) as (stable, vanished, third):
            both = asyncio.gather(vanished.enter(), _rejoin_when_asked(stable, 1))
            joined, _ = await both
            synced = asyncio.gather(stable.sync(joined.generation_id), vanished.sync(joined.generation_id))
            assert await synced == [0, 0]
            vanished.vanish()
            rejoin = asyncio.ensure_future(stable.join())
            assert not await is_answered(rejoin)
            await third.leave(vanished.id)
            assert [member.member_id for member in (await rejoin).members] == [stable.id]

    run(main())


async def _is_rebalancing(member: Member, generation: int) -> bool:
    return await member.heartbeat(generation) == ErrorCode.REBALANCE_IN_PROGRESS


async def _rejoin_when_asked(member: Member, generation: int) -> JoinGroupResponse:
    await until_async(lambda: _is_rebalancing(member, generation), "a rebalance")
    return await member.join()
