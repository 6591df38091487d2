"""Every API with every kind of client: super user, allowed, no ACL, denied, other host, prefixed (MX01, CV03)."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterable
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ottla.broker.app import Broker
from ottla.broker.authorization import ROWS, authorized
from ottla.broker.authorization.guard import Guard
from ottla.broker.handlers import HANDLERS
from ottla.broker.network.connection import Connection
from ottla.broker.network.dispatch import Dispatcher, PendingReply
from ottla.broker.network.socket_server import ListenerUse
from ottla.cluster.requests import NewTopic
from ottla.errors import MalformedInput
from ottla.ports import FileRange
from ottla.protocol.headers import decode_response, encode_request
from ottla.protocol.registry import API_BY_NAME
from ottla.runtime.loop import run
from ottla.security.acl import (
    ALLOW,
    CLUSTER,
    DENY,
    LITERAL,
    PREFIXED,
    TOPIC,
    WRITE,
    AclEntry,
    ResourcePattern,
)
from ottla.security.principal import Principal, Session
from tests.broker.asked import StoppedClock, started
from tests.kit.authorization_cases import CASES, DENIALS, PARTLY, Case, Names, errors, message

HERE, ELSEWHERE = "10.0.0.1", "10.9.9.9"
ALICE = "User:alice"
SETTINGS = {
    "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
    "super.users": "User:admin",
    "auto.create.topics.enable": "true",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "group.initial.rebalance.delay.ms": "0",
    "delegation.token.secret.key": "key",
}


class Asking:
    """A broker, and clients of any principal without sockets."""

    def __init__(self, broker: Broker, dispatcher: Any) -> None:
        self.broker = broker
        self._dispatcher = dispatcher

    @property
    def authorizer(self) -> Any:
        return self.broker.metadata.authorizer

    def client(self, principal: str = ALICE, host: str = HERE) -> Connection:
        connection = Connection(self.broker.server, ListenerUse("PLAINTEXT"))
        connection.listener_name = "PLAINTEXT"
        # As after a login: delegation tokens need one.
        connection.session = Session(host, "PLAINTEXT", "SASL_PLAINTEXT", Principal("User", principal.removeprefix("User:")))
        return connection

    def names(self, topic: str, version: int) -> Names:
        suffix = topic.removeprefix("t-")
        known = self.broker.image.topics.get(topic)
        names = Names(topic, f"g-{suffix}", f"x-{suffix}", version=version)
        return replace(names, topic_id=known.topic_id) if known is not None else names

    async def bytes_of(self, client: Connection, api_name: str, version: int, request: object) -> bytes | str:
        frame = b"".join(encode_request(API_BY_NAME[api_name], version, 7, "me", request))[4:]  # type: ignore[arg-type]
        return await self.answer_to(client, frame)

    async def answer_to(self, client: Connection, frame: bytes) -> bytes | str:
        """The response, or that the connection is closed, or that there is none."""
        try:
            reply = self._dispatcher.dispatch(memoryview(bytearray(frame)), client)
            if isinstance(reply, PendingReply):
                await asyncio.wait([reply.future], timeout=30)
                reply = reply.parts()
        except MalformedInput:
            return "closed"
        if reply is None:
            return "none"
        return b"".join(
            part.file.read(part.position, part.size) if isinstance(part, FileRange) else bytes(part) for part in reply
        )[4:]

    async def ask(self, client: Connection, api_name: str, version: int, request: object) -> Any:
        answer = await self.bytes_of(client, api_name, version, request)
        return answer if isinstance(answer, str) else decode_response(API_BY_NAME[api_name], version, memoryview(answer))[1]

    def set_acls(self, acls: Iterable[tuple[ResourcePattern, AclEntry]]) -> None:
        found: dict[ResourcePattern, frozenset[AclEntry]] = {}
        for resource, entry in acls:
            found[resource] = found.get(resource, frozenset()) | {entry}
        self.authorizer.replace_all(found)


@contextlib.asynccontextmanager
async def asking(path: Path) -> AsyncIterator[Asking]:
    topics = [NewTopic("t-exists", 1, 1), NewTopic("t-other", 1, 1)]
    async with started(path, topics, SETTINGS, clock=StoppedClock()) as broker:
        dispatch: Any = broker.server.dispatch
        found = Asking(broker, dispatch.__self__)
        admin = found.client("User:admin")
        for api, version, kind in (("find_coordinator", 3, 0), ("find_coordinator", 3, 1)):
            request = message(api, "FindCoordinatorRequest", key="exists", key_type=kind)
            assert (await found.ask(admin, api, version, request)).error_code == 0
        for case in CASES:
            if case.id in ("offset_commit", "init_producer_id-transactional"):
                names = found.names("t-exists", 5)
                response = await found.ask(admin, case.api, 5, case.build(names))
                assert not set(errors(response)), case.id
        yield found


def grants(
    case: Case, names: Names, *, host: str = "*", pattern: int = LITERAL, permission: int = ALLOW, without: int = 0
) -> list[tuple[ResourcePattern, AclEntry]]:
    """What the case needs, except on resources of type `without`."""
    found = []
    for kind, operation in case.needs:
        name = names.of(kind)
        prefixed = pattern == PREFIXED and kind != CLUSTER
        resource = ResourcePattern(kind, name[:3] if prefixed else name, PREFIXED if prefixed else LITERAL)
        if kind != without:
            found.append((resource, AclEntry(ALICE, host, operation, permission)))
    return found


def versions_of(case: Case) -> range:
    handler = HANDLERS[API_BY_NAME[case.api].key]
    return range(max(handler.min_version, case.first_version), min(handler.max_version, case.last_version) + 1)


def state(broker: Broker) -> object:
    """What a request could change."""
    partitions = {str(each.topic_partition): each.log.log_end_offset for each in broker.partitions}
    groups = {
        group_id: group.state_name for shard in broker.groups.shards.all() for group_id, group in shard.groups.by_id.items()
    }
    tokens = broker.tokens.describe(None)
    return broker.image.topics, broker.image.broker_configs, partitions, groups, broker.controller.config_requests.clients, tokens


def codes_of(case: Case, version: int, answer: bytes | str) -> set[tuple[str, int]]:
    if isinstance(answer, str):
        return {(answer, 0)}
    return set(errors(decode_response(API_BY_NAME[case.api], version, memoryview(answer))[1]))


def test_mx01_every_api_has_a_row_and_a_case() -> None:
    apis = {handler.api.name for handler in HANDLERS.values()}
    assert apis <= set(ROWS), "add a row to ottla.broker.authorization.ROWS"
    assert apis == {case.api for case in CASES}


SERVED_ALONE = [case for case in CASES if not HANDLERS[API_BY_NAME[case.api].key].between_brokers]


def test_mx01_what_is_denied_has_its_code_changes_nothing_and_does_not_tell_what_exists(tmp_path: Path) -> None:
    async def test() -> None:
        async with asking(tmp_path) as broker:
            for case in SERVED_ALONE:
                for version in versions_of(case) if case.needs else ():
                    await check_denied(broker, case, version)

    run(test())


async def check_denied(broker: Asking, case: Case, version: int) -> None:
    label = f"{case.id} v{version}"
    there, missing = broker.names("t-exists", version), broker.names("t-absent", version)
    wanted = {("closed", 0)} if case.closes else set(case.denied_in(version))
    answers: set[bytes | str] = set()
    no_acl: list[tuple[ResourcePattern, AclEntry]] = []
    denied = [*grants(case, there), *grants(case, there, permission=DENY)]
    if case.label == "any-topic":
        denied.append((ResourcePattern(TOPIC, "*"), AclEntry(ALICE, "*", WRITE, DENY)))
    for acls in (no_acl, denied, grants(case, there, host=ELSEWHERE), grants(case, there, without=-1)):
        broker.set_acls(acls)
        before = state(broker.broker)
        client = broker.client() if acls != grants(case, there) else broker.client("User:bob")
        answer = await broker.bytes_of(client, case.api, version, case.build(there))
        assert codes_of(case, version, answer) == wanted, label
        assert state(broker.broker) == before, f"{label} changed something"
        # CreateDelegationToken names its requester.
        answers.add(answer.replace(b"\x04bob", b"\x06alice") if isinstance(answer, bytes) else answer)
    assert len(answers) == 1, label
    if missing.topic_id == there.topic_id or not _named_by_id(case, version):
        broker.set_acls([])
        absent = await broker.bytes_of(broker.client(), case.api, version, case.build(missing))
        (known,) = answers
        if isinstance(known, bytes) and isinstance(absent, bytes):
            assert known.replace(b"exists", b"absent") == absent, f"{label} tells what exists"
        else:
            assert known == absent


def _named_by_id(case: Case, version: int) -> bool:
    return {"produce": 13, "fetch": 13, "offset_commit": 10, "offset_fetch": 10}.get(case.api, 99) <= version


def test_mx01_what_is_allowed_is_not_denied(tmp_path: Path) -> None:
    async def test() -> None:
        async with asking(tmp_path) as broker:
            for case in SERVED_ALONE:
                for version in versions_of(case):
                    await check_allowed(broker, case, version)

    run(test())


async def check_allowed(broker: Asking, case: Case, version: int) -> None:
    there, missing = broker.names("t-exists", version), broker.names("t-absent", version)
    # What removes or waits is tried on names that do not exist.
    names = missing if case.api in ("delete_topics", "delete_groups", "join_group") else there
    for acls, client in (
        ([], broker.client("User:admin")),
        (grants(case, names), broker.client()),
        (grants(case, names, host=HERE), broker.client()),
        (grants(case, names, pattern=PREFIXED), broker.client()),
    ):
        broker.set_acls(acls)
        answer = await broker.bytes_of(client, case.api, version, case.build(names))
        told = codes_of(case, version, answer)
        assert not {code for _, code in told} & DENIALS, (case.id, version, told)
        # The transaction of the batch does not exist, whoever sends it.
        assert ("closed", 0) not in told or case.id == "produce-transactional-acks0", (case.id, version)


@pytest.mark.parametrize(("case_id", "kind", "first", "wanted"), PARTLY)
def test_mx01_one_resource_of_several_is_denied(
    tmp_path: Path, case_id: str, kind: int, first: int, wanted: frozenset[tuple[str, int]]
) -> None:
    (case,) = [case for case in CASES if case.id == case_id]
    later = [number for other, _, number, _ in PARTLY if other == case_id and number > first]

    async def test() -> None:
        async with asking(tmp_path) as broker:
            for version in versions_of(case):
                if version < first or (later and version >= min(later)):
                    continue
                names = broker.names("t-exists", version)
                broker.set_acls(grants(case, names, without=kind))
                before = state(broker.broker)
                answer = await broker.bytes_of(broker.client(), case.api, version, case.build(names))
                assert codes_of(case, version, answer) == wanted, version
                assert state(broker.broker) == before

    run(test())


def test_mx01_requests_between_brokers_need_cluster_action(tmp_path: Path) -> None:
    async def test() -> None:
        async with asking(tmp_path) as alone:
            calls: list[object] = []

            async def record(*arguments: object) -> Any:
                calls.append(arguments)
                raise MalformedInput("called")

            controller = SimpleNamespace(
                state=SimpleNamespace(is_active=True),
                controlled_shutdown=record,
                alter_partitions=record,
                allocate_producer_ids=record,
            )
            parts = {
                "control_requests": SimpleNamespace(handle=record),
                "broker_requests": controller,
                "metadata": alone.broker.metadata,
            }
            guard = Guard(alone.authorizer, alone.broker.metadata)
            dispatcher = Dispatcher(HANDLERS, parts, asyncio.get_running_loop(), authorize=partial(authorized, guard))
            broker = Asking(alone.broker, dispatcher)
            for case in CASES:
                if case in SERVED_ALONE:
                    continue
                for version in versions_of(case):
                    names = broker.names("t-exists", version)
                    for acls in ([], grants(case, names, host=ELSEWHERE), grants(case, names, permission=DENY)):
                        broker.set_acls(acls)
                        answer = await broker.bytes_of(broker.client(), case.api, version, case.build(names))
                        assert codes_of(case, version, answer) == set(case.denied), (case.id, version)
                    assert calls == []
                    broker.set_acls(grants(case, names))
                    await broker.bytes_of(broker.client(), case.api, version, case.build(names))
                    assert len(calls) == 1, (case.id, version)
                    calls.clear()

    run(test())


def test_mx01_an_api_without_a_row_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(ROWS, "list_groups")

    async def test() -> None:
        async with asking(tmp_path) as broker:
            request = message("list_groups", "ListGroupsRequest")
            assert (await broker.ask(broker.client("User:admin"), "list_groups", 4, request)).error_code == 31

    run(test())
