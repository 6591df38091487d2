"""What others write of access control in the tree reaches every broker, by the notices and after a lost session (F59)."""

from __future__ import annotations

from ottla.cluster.acls import AclEntry, Resource
from ottla.ports import Create, Delete, SetData
from tests.kit.controller_world import World, in_world, until


def entry(principal: str) -> bytes:
    acl = f'{{"principal":"{principal}","permissionType":"Allow","operation":"Read","host":"*"}}'
    return f'{{"version":1,"acls":[{acl}]}}'.encode()


ALICE, BOB = AclEntry("User:alice", "*", "Read", "Allow"), AclEntry("User:bob", "*", "Read", "Allow")
TOPIC, GROUPS = Resource("Topic", "t"), Resource("Group", "g", "PREFIXED")


def as_kafka_begins(world: World) -> None:
    """The nodes its authorizer makes first."""
    world.write(Create("/kafka-acl"), Create("/kafka-acl/Topic"), Create("/kafka-acl-changes"))
    world.write(Create("/kafka-acl-extended"), Create("/kafka-acl-extended/prefixed"))
    world.write(Create("/kafka-acl-extended/prefixed/Group"), Create("/kafka-acl-extended-changes"))


def test_entries_follow_the_notices() -> None:
    async def test(world: World) -> None:
        members = await world.add(1, 2)
        as_kafka_begins(world)
        world.write(Create("/kafka-acl/Topic/t", entry("User:alice")))
        world.write(Create("/kafka-acl-changes/acl_changes_", b"TOPIC:t", sequential=True))
        for member in members:
            await until(lambda member=member: member.controller.acl_entities.acls == {TOPIC: {ALICE}})
        world.write(Create("/kafka-acl-extended/prefixed/Group/g", entry("User:bob")))
        notice = b'{"version":1,"resourceType":"GROUP","name":"g","patternType":"PREFIXED"}'
        world.write(Create("/kafka-acl-extended-changes/acl_changes_", notice, sequential=True))
        for member in members:
            await until(lambda member=member: member.controller.acl_entities.acls == {TOPIC: {ALICE}, GROUPS: {BOB}})
        world.write(Delete("/kafka-acl/Topic/t"), Create("/kafka-acl-changes/acl_changes_", b"TOPIC:t", sequential=True))
        for member in members:
            await until(lambda member=member: member.controller.acl_entities.acls == {GROUPS: {BOB}})

    in_world(test)


def test_a_broker_that_comes_later_or_lost_its_session_reads_everything() -> None:
    async def test(world: World) -> None:
        (first,) = await world.add(1)
        as_kafka_begins(world)
        # Without a notice: only who reads everything finds it.
        world.write(Create("/kafka-acl/Topic/t", entry("User:alice")), Create("/kafka-acl/Topic/spoiled", b"{"))
        (second,) = await world.add(2)
        assert second.controller.acl_entities.acls == {TOPIC: {ALICE}}
        assert first.controller.acl_entities.acls == {}
        world.write(SetData("/kafka-acl/Topic/t", entry("User:bob")))
        first.store.lose()
        await until(lambda: first.controller.acl_entities.acls == {TOPIC: {BOB}})

    in_world(test)
