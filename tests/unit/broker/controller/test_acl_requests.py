"""CreateAcls and DeleteAcls: what is written in the tree, and when it is answered (AC06-AC09)."""

from __future__ import annotations

import asyncio
import json
import random

from ottla.broker.controller.acl_requests import AclRequests, Binding
from ottla.errors import ErrorCode, KafkaError
from ottla.ports import Create
from ottla.security.acl import (
    ALL,
    ALLOW,
    ANY,
    CLUSTER,
    DENY,
    GROUP,
    LITERAL,
    MATCH,
    PREFIXED,
    READ,
    TOPIC,
    WRITE,
    AclEntry,
    AclFilter,
    ResourcePattern,
)
from ottla.security.acl_nodes import acknowledged_path, encode_acknowledged
from ottla.sim.kernel.process import Process
from tests.kit.controller_world import Member, World, all_here, in_world, until
from tests.kit.present import present

WITH_ACLS = {"authorizer.class.name": "kafka.security.authorizer.AclAuthorizer"}
ORDERS, ORD = ResourcePattern(TOPIC, "orders"), ResourcePattern(TOPIC, "ord", PREFIXED)
ALICE, BOB = AclEntry("User:alice", "*", READ, ALLOW), AclEntry("User:bob", "*", WRITE, DENY)


def requests(member: Member) -> AclRequests:
    assert member.controller.acl_requests is not None
    return member.controller.acl_requests


def acls(member: Member) -> object:
    assert member.authorizer is not None
    return member.authorizer.index.entries


def codes(results: list[KafkaError | None]) -> list[int]:
    return [result.code if result is not None else 0 for result in results]


def test_ac08_nodes_and_notifications_are_kafkas() -> None:
    async def test(world: World) -> None:
        (member,) = await world.add(1)
        assert codes(await requests(member).create([(ORDERS, ALICE), (ORDERS, BOB), (ORD, BOB)])) == [0, 0, 0]
        node = world.tree.get("/kafka-acl/Topic/orders")
        assert node is not None
        assert json.loads(node.data) == {
            "version": 1,
            "acls": [
                {"principal": "User:alice", "permissionType": "Allow", "operation": "Read", "host": "*"},
                {"principal": "User:bob", "permissionType": "Deny", "operation": "Write", "host": "*"},
            ],
        }
        assert world.tree.get("/kafka-acl-extended/prefixed/Topic/ord") is not None
        literal = world.tree.get("/kafka-acl-changes/acl_changes_0000000000")
        assert literal is not None
        assert literal.data == b"TOPIC:orders"
        assert world.tree.get("/kafka-acl-extended-changes/acl_changes_0000000000") is not None
        await requests(member).create([(ORDERS, ALICE)])
        assert world.tree.get("/kafka-acl-changes/acl_changes_0000000001") is None, "nothing changed"
        await requests(member).delete([AclFilter(TOPIC, "orders", LITERAL)])
        assert world.tree.get("/kafka-acl/Topic/orders") is None
        assert world.tree.get("/kafka-acl-changes/acl_changes_0000000001") is not None
        assert acls(member) == {ORD: {BOB}}

    in_world(test, WITH_ACLS)


def test_ac06_each_acl_that_cannot_be_is_refused_alone() -> None:
    async def test(world: World) -> None:
        (member,) = await world.add(1)
        bad: list[Binding] = [
            (ResourcePattern(CLUSTER, "other"), ALICE),
            (ResourcePattern(TOPIC, ""), ALICE),
            (ResourcePattern(TOPIC, "a/b"), ALICE),
            (ResourcePattern(TOPIC, ".."), ALICE),
            (ResourcePattern(ANY, "t"), ALICE),
            (ResourcePattern(TOPIC, "t", MATCH), ALICE),
            (ORDERS, AclEntry("User:alice", "*", ANY, ALLOW)),
            (ORDERS, AclEntry("User:alice", "*", READ, ANY)),
            (ORDERS, AclEntry("alice", "*", READ, ALLOW)),
        ]
        results = await requests(member).create([*bad, (ResourcePattern(CLUSTER, "kafka-cluster"), ALICE)])
        assert codes(results) == [ErrorCode.INVALID_REQUEST] * len(bad) + [0]
        assert acls(member) == {ResourcePattern(CLUSTER, "kafka-cluster"): {ALICE}}

    in_world(test, WITH_ACLS)


def test_ac07_an_acl_that_two_filters_match_is_reported_under_the_first() -> None:
    async def test(world: World) -> None:
        (member,) = await world.add(1)
        everything = AclEntry("User:alice", "*", ALL, ALLOW)
        await requests(member).create(
            [(ORDERS, ALICE), (ORDERS, BOB), (ORDERS, everything), (ORD, BOB), (ResourcePattern(GROUP, "g"), BOB)]
        )
        filters = [
            AclFilter(TOPIC, "orders", MATCH, "User:bob"),
            AclFilter(TOPIC, "orders", LITERAL),
            AclFilter(TOPIC, "none", LITERAL),
        ]
        first, second, third = await requests(member).delete(filters)
        assert first.acls == [(ORD, BOB), (ORDERS, BOB)] or first.acls == [(ORDERS, BOB), (ORD, BOB)]
        assert second.acls == [(ORDERS, everything), (ORDERS, ALICE)] or second.acls == [(ORDERS, ALICE), (ORDERS, everything)]
        assert third.acls == []
        assert acls(member) == {ResourcePattern(GROUP, "g"): {BOB}}

    in_world(test, WITH_ACLS)


def test_ac09_a_change_is_answered_when_every_broker_enforces_it() -> None:
    async def test(world: World) -> None:
        members = await world.add(1, 2, 3)
        await all_here(world, 1, 2, 3)
        for number in range(10):
            writer = members[number % 3]
            binding = ResourcePattern(TOPIC, f"t{number}"), ALICE
            assert codes(await requests(writer).create([binding])) == [0]
            for member in members:
                assert binding[0] in present(member.authorizer).index.entries, (member.number, number)
        await requests(members[0]).delete([AclFilter()])
        for member in members:
            assert acls(member) == {}

    in_world(test, WITH_ACLS)


def test_ac09_a_broker_that_does_not_confirm_is_waited_for_while_it_is_registered() -> None:
    async def test(world: World) -> None:
        (member,) = await world.add(1)
        mute = world.tree.session(Process("mute"), random.Random(9))
        await mute.multi(
            [
                Create("/brokers/ids/9", b"{}", ephemeral=True),
                Create(acknowledged_path(9), encode_acknowledged(-1, -1), ephemeral=True),
            ]
        )
        creating = asyncio.ensure_future(requests(member).create([(ORDERS, ALICE)]))
        await until(lambda: acls(member) == {ORDERS: {ALICE}})
        await asyncio.sleep(0.02)
        assert not creating.done()
        mute.lose()
        assert codes(await creating) == [0]

    in_world(test, WITH_ACLS)


def test_ac09_a_repeated_change_waits_for_what_the_first_one_waits_for() -> None:
    """Its client gave up and asked again; there is nothing left to write, and a broker that does not enforce it yet."""

    async def test(world: World) -> None:
        (member,) = await world.add(1)
        await requests(member).create([(ORDERS, ALICE)])
        mute = world.tree.session(Process("mute"), random.Random(9))
        await mute.multi(
            [
                Create("/brokers/ids/9", b"{}", ephemeral=True),
                Create(acknowledged_path(9), encode_acknowledged(0, -1), ephemeral=True),
            ]
        )
        assert codes(await requests(member).create([(ORDERS, ALICE)])) == [0], "the broker enforces it already"
        deletions = [asyncio.ensure_future(requests(member).delete([AclFilter(TOPIC, "orders")]))]
        await until(lambda: acls(member) == {})
        deletions.append(asyncio.ensure_future(requests(member).delete([AclFilter(TOPIC, "orders")])))
        deletions.append(asyncio.ensure_future(requests(member).delete([AclFilter()])))
        await asyncio.sleep(0.05)
        assert not any(each.done() for each in deletions[:2])
        mute.lose()
        for (deleted,) in await asyncio.gather(*deletions):
            assert deleted.failure is None

    in_world(test, WITH_ACLS)


def test_ac09_a_deletion_that_cannot_read_the_acls_fails() -> None:
    """Without the store nobody knows whether there was something to delete."""

    async def test(world: World) -> None:
        (member,) = await world.add(1)
        await requests(member).create([(ORDERS, ALICE)])
        world.tree.reachable = False
        deleted, other = await requests(member).delete([AclFilter(TOPIC, "orders"), AclFilter(GROUP, "group")])
        world.tree.reachable = True
        assert deleted.failure is not None
        assert deleted.failure.code == ErrorCode.KAFKA_STORAGE_ERROR
        assert other.failure is not None
        assert acls(member) == {ORDERS: {ALICE}}

    in_world(test, WITH_ACLS)


def test_ac09_a_broker_that_never_confirms_fails_the_request() -> None:
    async def test(world: World) -> None:
        (member,) = await world.add(1)
        world.write(Create("/brokers/ids/9", b"{}"), Create(acknowledged_path(9), encode_acknowledged(-1, -1)))
        requests(member)._within_s = 0.05
        (error,) = await requests(member).create([(ORDERS, ALICE)])
        assert error is not None
        assert error.code == ErrorCode.REQUEST_TIMED_OUT
        assert "broker 9" in (error.detail or "")
        (deleted,) = await requests(member).delete([AclFilter(TOPIC, "orders", LITERAL)])
        assert deleted.failures[ORDERS].code == ErrorCode.REQUEST_TIMED_OUT

    in_world(test, WITH_ACLS)


def test_ac09_a_broker_of_apache_kafka_acknowledges_nothing_and_is_not_waited_for() -> None:
    async def test(world: World) -> None:
        (member,) = await world.add(1)
        world.write(Create("/brokers/ids/9", b"{}"))
        assert codes(await requests(member).create([(ORDERS, ALICE)])) == [0]

    in_world(test, WITH_ACLS)


def test_ac08_writers_on_two_brokers_lose_nothing() -> None:
    async def test(world: World) -> None:
        members = await world.add(1, 2)
        entries = [AclEntry(f"User:u{number}", "*", READ, ALLOW) for number in range(40)]
        await asyncio.gather(*(requests(members[number % 2]).create([(ORDERS, entry)]) for number, entry in enumerate(entries)))
        for member in members:
            assert acls(member) == {ORDERS: set(entries)}

    in_world(test, WITH_ACLS)


def test_acls_that_cannot_be_parsed_are_not_overwritten_but_can_be_deleted() -> None:
    async def test(world: World) -> None:
        (member,) = await world.add(1)
        world.write(Create("/kafka-acl/Topic/orders", b"{"))
        world.write(Create("/kafka-acl-changes/acl_changes_", b"TOPIC:orders", sequential=True))
        await until(lambda: ORDERS in present(member.authorizer).index.entries)
        assert codes(await requests(member).create([(ORDERS, ALICE)])) == [ErrorCode.KAFKA_STORAGE_ERROR]
        await requests(member).delete([AclFilter(TOPIC, "orders", LITERAL)])
        assert world.tree.get("/kafka-acl/Topic/orders") is None
        assert codes(await requests(member).create([(ORDERS, ALICE)])) == [0]

    in_world(test, WITH_ACLS)
