"""ACLs that others write in the tree reach every broker's authorizer, by notifications and after a lost session (F59, AC08)."""

from __future__ import annotations

import asyncio

from ottla.ports import Create, Delete, SessionEvent, SetData
from ottla.security.acl import ALLOW, GROUP, PREFIXED, READ, TOPIC, AclEntry, ResourcePattern
from ottla.security.acl_nodes import UNREADABLE, acknowledged_path, decode_acknowledged
from tests.kit.controller_world import Member, World, in_world, until

WITH_ACLS = {"authorizer.class.name": "kafka.security.authorizer.AclAuthorizer"}


def entry(principal: str) -> bytes:
    acl = f'{{"principal":"{principal}","permissionType":"Allow","operation":"Read","host":"*"}}'
    return f'{{"version":1,"acls":[{acl}]}}'.encode()


ALICE, BOB = AclEntry("User:alice", "*", READ, ALLOW), AclEntry("User:bob", "*", READ, ALLOW)
ORDERS, GROUPS = ResourcePattern(TOPIC, "t"), ResourcePattern(GROUP, "g", PREFIXED)


def acls(member: Member) -> object:
    assert member.authorizer is not None
    return member.authorizer.index.entries


def acknowledged(world: World, number: int) -> tuple[int, int]:
    node = world.tree.get(acknowledged_path(number))
    assert node is not None
    return decode_acknowledged(node.data)


def test_ac08_acls_follow_the_notifications() -> None:
    async def test(world: World) -> None:
        members = await world.add(1, 2)
        world.write(Create("/kafka-acl/Topic/t", entry("User:alice")))
        world.write(Create("/kafka-acl-changes/acl_changes_", b"TOPIC:t", sequential=True))
        for member in members:
            await until(lambda member=member: acls(member) == {ORDERS: {ALICE}})
        world.write(Create("/kafka-acl-extended/prefixed/Group/g", entry("User:bob")))
        note = b'{"version":1,"resourceType":"GROUP","name":"g","patternType":"PREFIXED"}'
        world.write(Create("/kafka-acl-extended-changes/acl_changes_", note, sequential=True))
        for member in members:
            await until(lambda member=member: acls(member) == {ORDERS: {ALICE}, GROUPS: {BOB}})
        world.write(Delete("/kafka-acl/Topic/t"), Create("/kafka-acl-changes/acl_changes_", b"TOPIC:t", sequential=True))
        for member in members:
            await until(lambda member=member: acls(member) == {GROUPS: {BOB}})
            await until(lambda member=member: acknowledged(world, member.number) == (1, 0))

    in_world(test, WITH_ACLS)


def test_a_broker_that_comes_later_or_lost_its_session_reads_everything() -> None:
    async def test(world: World) -> None:
        (first,) = await world.add(1)
        # Without a notification: only who reads everything finds it.
        world.write(Create("/kafka-acl/Topic/t", entry("User:alice")), Create("/kafka-acl/Topic/spoiled", b"{"))
        (second,) = await world.add(2)
        assert acls(second) == {ORDERS: {ALICE}, ResourcePattern(TOPIC, "spoiled"): UNREADABLE}
        assert acls(first) == {}
        world.write(SetData("/kafka-acl/Topic/t", entry("User:bob")), Delete("/kafka-acl/Topic/spoiled"))
        first.store.lose()
        await until(lambda: acls(first) == {ORDERS: {BOB}})

    in_world(test, WITH_ACLS)


def test_ac09_an_authorizer_is_suspended_until_its_broker_has_registered_and_read_again() -> None:
    async def test(world: World) -> None:
        (member,) = await world.add(1)
        authorizer = member.authorizer
        assert authorizer is not None
        assert not authorizer.suspended
        assert world.tree.get(acknowledged_path(1)) is not None
        seen: list[tuple[SessionEvent, bool]] = []
        member.store.on_session(lambda event: seen.append((event, authorizer.suspended)))
        # Without a notification: only who reads everything finds it.
        world.write(Create("/kafka-acl/Topic/t", entry("User:alice")))
        member.store.lose()
        await until(lambda: seen and not authorizer.suspended)
        assert seen[0] == (SessionEvent.EXPIRED, True)
        assert acls(member) == {ORDERS: {ALICE}}
        assert world.tree.get("/brokers/ids/1") is not None
        assert world.tree.get(acknowledged_path(1)) is not None

    in_world(test, WITH_ACLS)


def test_ac09_what_was_read_before_the_broker_registered_again_does_not_end_the_suspension() -> None:
    """The session expired in the middle of a reading that went on after it: it may lack what was confirmed meanwhile."""

    async def test(world: World) -> None:
        (member,) = await world.add(1)
        authorizer, follower = member.authorizer, member.controller._acl_follower
        assert authorizer is not None
        assert follower is not None
        original, gates, readings = member.store.children, [asyncio.Event(), asyncio.Event()], []

        async def children(path: str) -> list[str]:
            found = await original(path)
            if path == "/kafka-acl/User":
                readings.append(path)
                await gates[min(len(readings), len(gates)) - 1].wait()
            return found

        member.store.children = children  # type: ignore[method-assign]
        follower._reader.read_all_soon()
        await until(lambda: len(readings) == 1)
        member.store.lose()
        await until(lambda: authorizer.suspended)
        world.write(Create("/kafka-acl/Topic/t", entry("User:alice")))
        await until(lambda: world.tree.get(acknowledged_path(1)) is not None and follower._acknowledged is not None)
        gates[0].set()
        await until(lambda: len(readings) == 2)
        assert authorizer.suspended
        gates[1].set()
        await until(lambda: not authorizer.suspended)
        assert acls(member) == {ORDERS: {ALICE}}

    in_world(test, WITH_ACLS)


def test_without_an_authorizer_nothing_is_followed_or_acknowledged() -> None:
    async def test(world: World) -> None:
        (member,) = await world.add(1)
        assert member.authorizer is None
        assert member.controller.acl_requests is None
        assert world.tree.get("/kafka-acl") is None

    in_world(test)
