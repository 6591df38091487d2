"""A member of the Kafka group in which registries choose their leader.

1. `run` joins, and joins again whenever the group rebalances or forgot this member. It ends only when it is cancelled.
2. `on_assigned` hears of every assignment. Between two generations there is no leader.
3. It is a static member by its URL (KIP-345): a registry that was killed and starts again has its old place at once.
4. `confirm` says whether this member is still of its generation. Within a third of the session timeout since the coordinator
   last said so, it cannot have left the group; after that the coordinator is asked.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from typing import Any, Final

from ottla.client.brokers import BrokerFailed, Request, Versions
from ottla.errors import ErrorCode, KafkaError, error_name
from ottla.protocol.messages.heartbeat import HeartbeatRequest
from ottla.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from ottla.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from ottla.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from ottla.registry.election import (
    DUPLICATE_URLS,
    PROTOCOL_NAME,
    PROTOCOL_TYPE,
    Assignment,
    Identity,
    decode_assignment,
    decode_identity,
    elect,
)
from ottla.registry.partition import GROUP, Partition

SESSION_TIMEOUT_MS: Final = 10_000
REBALANCE_TIMEOUT_MS: Final = 60_000
HEARTBEAT_INTERVAL_S: Final = 3.0
_CONFIRMED_FOR_S: Final = SESSION_TIMEOUT_MS / 3000
_PAUSE_S: Final = 0.5

_JOIN_VERSIONS: Final = (1, 5)
_SYNC_VERSIONS: Final = (0, 3)
_HEARTBEAT_VERSIONS: Final = (0, 3)
_LEAVE_VERSIONS: Final = (0, 3)
_STATIC_JOIN, _STATIC_REST = 5, 3
"""Versions from which on JoinGroup, and the other requests, know static members."""
_FENCED_PAUSE_S: Final = SESSION_TIMEOUT_MS / 1000
_FORGOTTEN: Final = frozenset({ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION, ErrorCode.FENCED_INSTANCE_ID})

logger = logging.getLogger("ottla.registry")


def _now_s() -> float:
    return asyncio.get_running_loop().time()


class Membership:
    def __init__(
        self, partition: Partition, group_id: str, identity: Identity, on_assigned: Callable[[Assignment | None], None]
    ) -> None:
        """`on_assigned` gets None when the last assignment no longer holds."""
        self._partition = partition
        self._group_id = group_id
        self._identity = identity
        self._on_assigned = on_assigned
        self._member_id = ""
        self._generation = -1
        self._confirmed_at_s = float("-inf")
        self._beating = asyncio.Lock()

    @property
    def url(self) -> str:
        return self._identity.url

    async def run(self) -> None:
        silent = False
        while True:
            try:
                await self._join()
                silent = False
                await self._stay()
            except (BrokerFailed, KafkaError) as error:
                if not silent:
                    logger.warning("Cannot join group %s, trying again: %s", self._group_id, error)
                silent = True
                is_fenced = isinstance(error, KafkaError) and error.code == ErrorCode.FENCED_INSTANCE_ID
                await asyncio.sleep(_FENCED_PAUSE_S if is_fenced else _PAUSE_S)
            finally:
                self._end_generation()

    async def confirm(self) -> bool:
        """Whether this member is still of the generation of its last assignment."""
        if self._generation < 0:
            return False
        if _now_s() - self._confirmed_at_s < _CONFIRMED_FOR_S:
            return True
        with contextlib.suppress(BrokerFailed, KafkaError):
            return await self._beat() == ErrorCode.NONE
        return False

    async def leave(self) -> None:
        """Leave the group, so that another one leads at once."""
        if not self._member_id:
            return

        def request(version: int) -> LeaveGroupRequest:
            if version < _STATIC_REST:
                return LeaveGroupRequest(group_id=self._group_id, member_id=self._member_id)
            member = MemberIdentity(member_id=self._member_id, group_instance_id=self._identity.url)
            return LeaveGroupRequest(group_id=self._group_id, members=[member])

        with contextlib.suppress(BrokerFailed, KafkaError, TimeoutError):
            async with asyncio.timeout(_PAUSE_S * 4):
                await self._call("leave_group", request, _LEAVE_VERSIONS)
        self._member_id = ""

    # One generation

    async def _join(self) -> None:
        metadata = self._identity.encode()

        def request(version: int) -> JoinGroupRequest:
            return JoinGroupRequest(
                group_id=self._group_id,
                session_timeout_ms=SESSION_TIMEOUT_MS,
                rebalance_timeout_ms=REBALANCE_TIMEOUT_MS,
                member_id=self._member_id,
                group_instance_id=self._identity.url if version >= _STATIC_JOIN else None,
                protocol_type=PROTOCOL_TYPE,
                protocols=[JoinGroupRequestProtocol(name=PROTOCOL_NAME, metadata=metadata)],
            )

        joined = await self._call("join_group", request, _JOIN_VERSIONS)
        if joined.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self._member_id = joined.member_id
            joined = await self._call("join_group", request, _JOIN_VERSIONS)
        self._check(joined.error_code, "JoinGroup")
        began_s = _now_s()
        self._member_id, generation = joined.member_id, joined.generation_id
        assignments = []
        if joined.leader == joined.member_id:
            found = {each.member_id: decode_identity(bytes(each.metadata)) for each in joined.members}
            elected = elect({member_id: identity for member_id, identity in found.items() if identity is not None})
            assignments = [SyncGroupRequestAssignment(member_id=each, assignment=elected.encode()) for each in found]
        synced = await self._call(
            "sync_group",
            lambda version: SyncGroupRequest(
                group_id=self._group_id,
                generation_id=generation,
                member_id=self._member_id,
                group_instance_id=self._identity.url if version >= _STATIC_REST else None,
                assignments=assignments,
            ),
            _SYNC_VERSIONS,
        )
        self._check(synced.error_code, "SyncGroup")
        self._generation, self._confirmed_at_s = generation, began_s
        assignment = decode_assignment(bytes(synced.assignment))
        if assignment is not None and assignment.error == DUPLICATE_URLS:
            logger.error("Two registries of group %s are reached at one URL; give each its own with --advertise", self._group_id)
            # Writes could be forwarded to the wrong one: there is no leader.
            assignment = None
        self._on_assigned(assignment)

    async def _stay(self) -> None:
        """Heartbeats until the generation ends."""
        while True:
            await asyncio.sleep(HEARTBEAT_INTERVAL_S)
            try:
                code = await self._beat()
            except (BrokerFailed, KafkaError) as error:
                silent_s = _now_s() - self._confirmed_at_s
                logger.warning("No heartbeat of group %s for %.0f s: %s", self._group_id, silent_s, error)
                if silent_s * 1000 >= SESSION_TIMEOUT_MS:
                    return
                continue
            if code == ErrorCode.REBALANCE_IN_PROGRESS:
                return
            if code != ErrorCode.NONE:
                logger.warning("Joining group %s again: %s", self._group_id, error_name(code))
                return

    async def _beat(self) -> int:
        """Heartbeat; the error code of the answer. A changed coordinator is looked for once."""
        async with self._beating:
            began_s, generation = _now_s(), self._generation
            answer = await self._call(
                "heartbeat",
                lambda version: HeartbeatRequest(
                    group_id=self._group_id,
                    generation_id=generation,
                    member_id=self._member_id,
                    group_instance_id=self._identity.url if version >= _STATIC_REST else None,
                ),
                _HEARTBEAT_VERSIONS,
            )
            code = int(answer.error_code)
            if code == ErrorCode.NONE and generation == self._generation:
                self._confirmed_at_s = began_s
            elif code in _FORGOTTEN:
                self._forget(code)
            return code

    def _check(self, code: int, request: str) -> None:
        if code in _FORGOTTEN:
            self._forget(code)
        if code:
            raise KafkaError(ErrorCode(code), f"{request} of group {self._group_id}")

    def _forget(self, code: int) -> None:
        if code == ErrorCode.FENCED_INSTANCE_ID:
            logger.error("Another registry is reached at %s too; give each its own URL with --advertise", self._identity.url)
        if code != ErrorCode.ILLEGAL_GENERATION:
            self._member_id = ""
        self._end_generation()

    def _end_generation(self) -> None:
        if self._generation >= 0:
            self._generation = -1
            self._on_assigned(None)

    async def _call(self, api_name: str, request: Request, versions: Versions) -> Any:
        answer = await self._partition.call_coordinator(self._group_id, GROUP, api_name, request, versions)
        if answer.error_code in (
            ErrorCode.NOT_COORDINATOR,
            ErrorCode.COORDINATOR_NOT_AVAILABLE,
            ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ):
            raise KafkaError(ErrorCode(answer.error_code), f"coordinator of group {self._group_id}")
        return answer
