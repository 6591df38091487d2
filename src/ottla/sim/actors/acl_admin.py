"""Principals whose ACLs change all the time, and who ask whether brokers keep to them.

Owns: `Keeper`, a super user who adds and removes ACLs through any broker; `Suitor`, who asks any broker for something that it
may do or not; and which principals there are.
Never: asks for the opposite of a change that may still be on its way.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final

from ottla.client.connection import ClientConnection
from ottla.errors import ErrorCode
from ottla.protocol.messages.create_acls import AclCreation, CreateAclsRequest
from ottla.protocol.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from ottla.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.protocol.messages.find_coordinator import FindCoordinatorRequest
from ottla.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ottla.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from ottla.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.records.record import build_batch
from ottla.sim.actors.play import GROUP_KEY, Actor, Address, NoAnswer
from ottla.sim.kernel.machine import START_MS
from ottla.sim.kernel.network import NetworkView
from ottla.sim.models.acl_model import (
    ALL,
    ALLOW,
    DENY,
    DESCRIBE,
    GROUP,
    LITERAL,
    PREFIXED,
    READ,
    TOPIC,
    WRITE,
    AclModel,
    Rule,
)
from ottla.sim.violation import require
from ottla.types import ZERO_UUID

VAULT: Final = "vault"
"""The topic, and the group, that the ACLs are about."""
ROOT: Final = "root"
"""A super user."""
STAFF: Final = "staff"
"""All other clients. They may do everything, all along."""
SLOTS: Final = 3

RULES: Final = (
    Rule(TOPIC, VAULT, LITERAL, READ, ALLOW),
    Rule(TOPIC, VAULT, LITERAL, WRITE, ALLOW),
    Rule(TOPIC, VAULT, LITERAL, DESCRIBE, ALLOW),
    Rule(TOPIC, VAULT[:2], PREFIXED, ALL, ALLOW),
    Rule(TOPIC, "*", LITERAL, READ, ALLOW),
    Rule(TOPIC, VAULT, LITERAL, READ, DENY),
    Rule(TOPIC, VAULT[:3], PREFIXED, WRITE, DENY),
    Rule(TOPIC, VAULT[:3], PREFIXED, DESCRIBE, DENY),
    Rule(GROUP, VAULT, LITERAL, READ, ALLOW),
    Rule(GROUP, VAULT[:1], PREFIXED, DESCRIBE, DENY),
)
ANY: Final = 1
CLUSTER: Final = 4
TRANSACTIONAL_ID: Final = 5
CHANGE_S_MAX: Final = 40.0
FROZEN_MAX: Final = 4
ASK_S_MAX: Final = 5.0

REFUSED: Final = frozenset({ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.GROUP_AUTHORIZATION_FAILED})
SERVED: Final = frozenset(
    {
        ErrorCode.NONE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_ENOUGH_REPLICAS,
    }
)
"""Answers to who may ask. Others, such as UNKNOWN_TOPIC_ID, say nothing."""


def principal_of(host: str) -> str:
    """Whom the client on a host is authenticated as: brokers, the super user and suitors as themselves, all others as STAFF."""
    return host if host.startswith(("broker-", "suitor-", ROOT)) else STAFF


def super_users(brokers: int) -> str:
    return ";".join(f"User:{name}" for name in (ROOT, *(f"broker-{number}" for number in range(1, brokers + 1))))


class Principals:
    """The principals of the suitors, one in each slot."""

    def __init__(self, model: AclModel) -> None:
        self.model = model
        self.topic_id = ZERO_UUID
        """Of VAULT."""
        self.frozen: dict[str, set[Rule]] = {}
        """Rules of which a request may still be on its way: they stay as they are."""
        self._names = [f"suitor-{slot}-0" for slot in range(SLOTS)]
        self._count = 0

    def of(self, slot: int) -> str:
        """The principal in a slot: another one, when most rules of the last one are frozen."""
        if len(self.frozen.get(self._names[slot], ())) > FROZEN_MAX:
            self._count += 1
            self._names[slot] = f"suitor-{slot}-{self._count}"
        return self._names[slot]

    def all(self) -> list[str]:
        return list(self._names)


class Keeper(Actor):
    """Adds and removes the ACLs of one slot. Several keepers change the ACLs of the same resources at the same time."""

    principals: Principals
    slot: int

    async def run(self) -> None:
        rng = self.rng
        while True:
            principal, model = self.principals.of(self.slot), self.principals.model
            free = [rule for rule in RULES if rule not in self.principals.frozen.get(principal, ())]
            there = [rule for rule in free if True in model.may_be_there(principal, rule)]
            missing = [rule for rule in free if rule not in there]
            if there and (not missing or rng.random() < 0.5):
                await self._remove(principal, there)
            elif missing:
                await self._add(principal, rng.sample(missing, min(len(missing), rng.choice((1, 1, 2, 3)))))
            await asyncio.sleep(rng.choice((0.0, 0.2, 1.0)) * rng.random())

    async def _add(self, principal: str, rules: list[Rule]) -> None:
        creations = [
            AclCreation(
                resource_type=rule.resource_type,
                resource_name=rule.name,
                resource_pattern_type=rule.pattern,
                principal=f"User:{principal}",
                host="*",
                operation=rule.operation,
                permission_type=rule.permission,
            )
            for rule in rules
        ]
        await self._change(principal, rules, "create_acls", CreateAclsRequest(creations=creations), there=True)

    async def _remove(self, principal: str, there: list[Rule]) -> None:
        if self.rng.random() < 0.2 and principal not in self.principals.frozen:
            rules, filters = list(RULES), [_filter(principal)]
        else:
            rules = self.rng.sample(there, min(len(there), self.rng.choice((1, 1, 2))))
            filters = [_filter(principal, rule) for rule in rules]
        await self._change(principal, rules, "delete_acls", DeleteAclsRequest(filters=filters), there=False)

    async def _change(self, principal: str, rules: list[Rule], api: str, request: object, *, there: bool) -> None:
        """Ask until success is told. What was asked without an answer may arrive later, so these rules are not changed again."""
        shown = f"{'adds' if there else 'removes'} {', '.join(map(str, rules))} of {principal}"
        while not await self._ask_once(principal, rules, api, request, shown, there=there):
            await self.backoff()
        self.play.count("acl changes")

    async def _ask_once(self, principal: str, rules: list[Rule], api: str, request: object, shown: str, *, there: bool) -> bool:
        model, address = self.principals.model, self.rng.choice(self.play.brokers)
        try:
            connection = await asyncio.wait_for(ClientConnection.open(self._network, *address, client_id=self.name), ASK_S_MAX)
        except (OSError, TimeoutError):
            return False
        changes = model.begin(principal, rules, there=there)
        self.note(f"{shown} at broker {self.play.ids[address]}")
        try:
            patience_s = self.rng.choice((0.3, 1.0, CHANGE_S_MAX, CHANGE_S_MAX))
            response = await asyncio.wait_for(connection.send(api, 3, request), patience_s)
        except (OSError, TimeoutError) as error:
            codes = [ErrorCode.NETWORK_EXCEPTION]
            self.note(f"{api} of {principal}: {type(error).__name__}")
        else:
            codes = _codes(response)
        finally:
            connection.close()
        if codes:
            self.note(f"{api} of {principal}: {', '.join(code.name for code in codes)}")
            refused = {*REFUSED, ErrorCode.CLUSTER_AUTHORIZATION_FAILED} & {*codes}
            require(not refused, "acl", f"{self.name} is a super user, and {api} is refused")
            self.principals.frozen.setdefault(principal, set()).update(rules)
            return False
        model.done(changes)
        self.note(f"is told: {shown}")
        return True


def _codes(response: Any) -> list[ErrorCode]:
    """The errors of a response to CreateAcls or DeleteAcls."""
    if hasattr(response, "results"):
        found = [each.error_code for each in response.results]
    else:
        found = [each.error_code for each in response.filter_results]
        found += [acl.error_code for each in response.filter_results for acl in each.matching_acls]
    return [ErrorCode(code) for code in found if code]


def _filter(principal: str, rule: Rule | None = None) -> DeleteAclsFilter:
    """Finds one ACL of a principal, or all."""
    return DeleteAclsFilter(
        resource_type_filter=rule.resource_type if rule is not None else ANY,
        resource_name_filter=rule.name if rule is not None else None,
        pattern_type_filter=rule.pattern if rule is not None else ANY,
        principal_filter=f"User:{principal}",
        host_filter="*",
        operation=rule.operation if rule is not None else ANY,
        permission_type=rule.permission if rule is not None else ANY,
    )


class Suitor(Actor):
    """Asks brokers for what its principal may do or not, and judges the answer."""

    principals: Principals
    slot: int
    connect_as: Callable[[str], NetworkView]
    _principal = ""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._sessions: dict[Address, tuple[ClientConnection, int, int, int]] = {}
        """Fetch sessions: connection, id, the next epoch, version."""

    async def run(self) -> None:
        rng = self.rng
        while True:
            self.become(self.principals.of(self.slot))
            for outcome in await asyncio.gather(
                *(self.ask(address, rng.choice(self.acts())) for address in self.play.brokers), return_exceptions=True
            ):
                if isinstance(outcome, BaseException) and not isinstance(outcome, NoAnswer):
                    raise outcome
            await asyncio.sleep(rng.choice((0.05, 0.2, 0.6)) * rng.random())

    def become(self, principal: str) -> None:
        if principal != self._principal:
            self._principal = principal
            self._network = self.connect_as(principal)
            for address in list(self._connections):
                self.drop(address, close=True)

    def acts(self) -> list[Callable[[Address], Awaitable[tuple[int, int, int]]]]:
        read = [self._read, self._read_on, self._read_on]
        return [self._describe, self._list_offsets, *read, self._write, self._write, self._find_group]

    async def ask(self, address: Address, act: Callable[[Address], Awaitable[tuple[int, int, int]]]) -> None:
        """Ask one broker, and judge its answer."""
        start_s = self.play.now_s()
        principal = self._principal
        if not await self.reach(address):
            raise NoAnswer(f"{address} is out of reach")
        resource_type, operation, code = await act(address)
        error = ErrorCode(code)
        if error in REFUSED or error in SERVED:
            self.principals.model.judge(
                self.play.ids[address], principal, operation, resource_type, VAULT, start_s, allowed=error in SERVED
            )

    async def _describe(self, address: Address) -> tuple[int, int, int]:
        request = MetadataRequest(topics=[MetadataRequestTopic(name=VAULT)])
        response = await self._send(address, "metadata", 12, request)
        return TOPIC, DESCRIBE, response.topics[0].error_code

    async def _list_offsets(self, address: Address) -> tuple[int, int, int]:
        partition = ListOffsetsPartition(partition_index=0, timestamp=-1)
        request = ListOffsetsRequest(topics=[ListOffsetsTopic(name=VAULT, partitions=[partition])])
        response = await self._send(address, "list_offsets", 5, request)
        return TOPIC, DESCRIBE, response.topics[0].partitions[0].error_code

    async def _read(self, address: Address) -> tuple[int, int, int]:
        asked = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1000)
        topic = FetchTopic(topic=VAULT, topic_id=self.principals.topic_id, partitions=[asked])
        request = FetchRequest(max_wait_ms=0, min_bytes=1, max_bytes=1000, session_epoch=-1, topics=[topic])
        response = await self._send(address, "fetch", self.rng.choice((11, 13, 17)), request)
        if not response.responses:
            return TOPIC, READ, response.error_code or ErrorCode.UNKNOWN_SERVER_ERROR
        return TOPIC, READ, response.responses[0].partitions[0].error_code

    async def _read_on(self, address: Address) -> tuple[int, int, int]:
        """In a fetch session (KIP-227): the request names no topic, and a partition without news is not answered."""
        connection = self._connections[address]
        known = self._sessions.pop(address, None)
        if known is not None and known[0] is connection:
            _, session_id, epoch, version = known
            topics = []
        else:
            session_id, epoch, version = 0, 0, self.rng.choice((11, 17))
            asked = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1000)
            topics = [FetchTopic(topic=VAULT, topic_id=self.principals.topic_id, partitions=[asked])]
        request = FetchRequest(
            max_wait_ms=self.rng.choice((0, 100)),
            min_bytes=1,
            max_bytes=1000,
            session_id=session_id,
            session_epoch=epoch,
            topics=topics,
        )
        response = await self._send(address, "fetch", version, request)
        if response.error_code or not response.session_id:
            return TOPIC, READ, response.error_code or ErrorCode.UNKNOWN_SERVER_ERROR
        self._sessions[address] = (connection, response.session_id, epoch + 1, version)
        return TOPIC, READ, response.responses[0].partitions[0].error_code if response.responses else ErrorCode.NONE

    async def _write(self, address: Address) -> tuple[int, int, int]:
        data = PartitionProduceData(index=0, records=build_batch([(None, self._principal.encode(), (), START_MS)]))
        topic = TopicProduceData(name=VAULT, topic_id=self.principals.topic_id, partition_data=[data])
        request = ProduceRequest(acks=1, timeout_ms=3000, topic_data=[topic])
        response = await self._send(address, "produce", self.rng.choice((9, 11, 13)), request)
        return TOPIC, WRITE, response.responses[0].partition_responses[0].error_code

    async def _find_group(self, address: Address) -> tuple[int, int, int]:
        request = FindCoordinatorRequest(key_type=GROUP_KEY, coordinator_keys=[VAULT])
        response = await self._send(address, "find_coordinator", 4, request)
        return GROUP, DESCRIBE, response.coordinators[0].error_code

    async def _send(self, address: Address, api: str, version: int, request: object) -> Any:
        connection = self._connections.get(address)
        if connection is None or connection.closed:
            raise NoAnswer("the connection is closed")
        try:
            return await asyncio.wait_for(connection.send(api, version, request), ASK_S_MAX)
        except (OSError, TimeoutError) as error:
            self.drop(address, close=True)
            raise NoAnswer(str(error)) from error


async def open_the_doors(root: Actor, principals: Principals, replicas: int) -> None:
    """Allow STAFF everything and create VAULT, before anybody else comes."""
    types = ((TOPIC, "*"), (GROUP, "*"), (TRANSACTIONAL_ID, "*"), (CLUSTER, "kafka-cluster"))
    creations = [
        AclCreation(
            resource_type=kind, resource_name=name, principal=f"User:{STAFF}", host="*", operation=ALL, permission_type=ALLOW
        )
        for kind, name in types
    ]
    while True:
        try:
            address = root.rng.choice(root.play.brokers)
            found = await root.call(address, "create_acls", 3, CreateAclsRequest(creations=creations), patience_s=CHANGE_S_MAX)
        except NoAnswer:
            continue
        if not any(each.error_code for each in found.results):
            break
        await root.backoff()
    await root.create_topic(VAULT, 1, {}, replicas=replicas)
    principals.topic_id = root.play.topics.pop(VAULT).topic_id


async def ask_everybody(suitor: Suitor) -> None:
    """At the end: every broker answers every question of every principal as the ACLs say."""
    for slot in range(SLOTS):
        suitor.become(suitor.principals.of(slot))
        for address in suitor.play.brokers:
            for act in suitor.acts():
                while True:
                    try:
                        await suitor.ask(address, act)
                        break
                    except NoAnswer:
                        await suitor.backoff()
