"""Users, client ids and addresses in the tree: whoever writes them, every broker knows (F59, KIP-546, KIP-554)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest

from ottla.cluster.client_entities import CLIENT_ID, IP, USER, Entity, with_quotas
from ottla.errors import ErrorCode, KafkaError
from ottla.ports import Create, SetData
from tests.kit.controller_world import World, all_here, in_world, until
from tests.kit.present import present

ALICE: Entity = ((USER, "alice"),)
ALICE_AT: Entity = ((USER, "alice"), (CLIENT_ID, "app"))


def config(**fields: Any) -> bytes:
    return json.dumps({"version": 1, "config": fields}).encode()


def notice(path: str) -> Create:
    data = json.dumps({"version": 2, "entity_path": path}).encode()
    return Create("/config/changes/config_change_", data, sequential=True)


def test_what_was_there_before_is_read_at_the_start() -> None:
    async def test(world: World) -> None:
        await world.add(1)
        world.write(Create("/config/users/alice"), Create("/config/users/alice/clients"))
        world.write(Create("/config/users/alice/clients/app", config(producer_byte_rate="7")))
        world.write(Create("/config/ips/<default>", config(connection_creation_rate="9")), Create("/config/clients/odd", b"?"))
        await world.add(2)
        assert world.members[2].controller.config_requests.clients == {
            ALICE_AT: {"producer_byte_rate": "7"},
            ((IP, None),): {"connection_creation_rate": "9"},
        }

    in_world(test)


def test_what_others_write_reaches_every_broker_by_its_notice() -> None:
    async def test(world: World) -> None:
        members = await world.add(1, 2)
        await all_here(world, 1, 2)
        world.write(Create("/config/users/alice", config(producer_byte_rate="7")), notice("users/alice"))
        await until(
            lambda: all(member.controller.config_requests.clients == {ALICE: {"producer_byte_rate": "7"}} for member in members)
        )
        world.write(notice("users/nobody"), notice("teams/what"), notice(""))
        world.write(SetData("/config/users/alice", config()), notice("users/alice"))
        await until(lambda: all(not member.controller.config_requests.clients for member in members))

    in_world(test)


def test_sc03_a_node_without_configs_and_children_is_removed() -> None:
    async def test(world: World) -> None:
        (one,) = await world.add(1)
        await all_here(world, 1)
        requests = one.controller.config_requests
        await requests.alter_client(ALICE, lambda _: {"SCRAM-SHA-256": "x"})
        await requests.alter_client(ALICE_AT, lambda _: {"consumer_byte_rate": "3"})
        await requests.alter_client(ALICE, lambda _: {})
        left = world.tree.get("/config/users/alice")
        assert left is not None
        assert json.loads(left.data) == {"version": 1, "config": {}}
        await requests.alter_client(ALICE_AT, lambda _: {})
        assert world.tree.children("/config/users") == []
        await requests.alter_client(ALICE, lambda _: {"SCRAM-SHA-256": "x"})
        await requests.alter_client(ALICE_AT, lambda _: {"consumer_byte_rate": "3"})
        await requests.alter_client(ALICE_AT, lambda _: {})
        assert world.tree.children("/config/users/alice") == []
        assert requests.clients == {ALICE: {"SCRAM-SHA-256": "x"}}
        await requests.alter_client(ALICE, lambda _: {})
        assert world.tree.children("/config/users") == []
        notices = [world.tree.get(f"/config/changes/{name}") for name in world.tree.children("/config/changes")]
        assert json.loads(present(notices[-1]).data)["entity_path"] == "users/alice"

    in_world(test)


def test_sc05_only_the_controller_alters_scram_credentials() -> None:
    async def test(world: World) -> None:
        members = await world.add(1, 2)
        await all_here(world, 1, 2)
        outcomes = []
        for member in members:
            try:
                member.controller.config_requests.require_controller()
                outcomes.append(0)
            except KafkaError as error:
                outcomes.append(error.code)
        assert sorted(outcomes) == [0, ErrorCode.NOT_CONTROLLER]

    in_world(test)


def test_a_change_by_any_broker_reaches_all_and_keeps_what_others_wrote() -> None:
    async def test(world: World) -> None:
        one, two = await world.add(1, 2)
        await all_here(world, 1, 2)

        def rate(present: Mapping[str, str]) -> dict[str, str]:
            return with_quotas(ALICE, present, [("producer_byte_rate", 7.0)])

        await one.controller.config_requests.alter_client(ALICE_AT, lambda _: {"consumer_byte_rate": "3"})
        assert one.controller.config_requests.clients == {ALICE_AT: {"consumer_byte_rate": "3"}}
        world.write(SetData("/config/users/alice", config(**{"SCRAM-SHA-256": "x"})))
        await two.controller.config_requests.alter_client(ALICE, rate, validate_only=True)
        await two.controller.config_requests.alter_client(ALICE, rate)
        wanted = {ALICE_AT: {"consumer_byte_rate": "3"}, ALICE: {"SCRAM-SHA-256": "x", "producer_byte_rate": "7"}}
        await until(lambda: one.controller.config_requests.clients == two.controller.config_requests.clients == wanted)
        stored = world.tree.get("/config/users/alice")
        assert stored is not None
        assert json.loads(stored.data) == {"version": 1, "config": wanted[ALICE]}
        with pytest.raises(KafkaError) as caught:
            await one.controller.config_requests.alter_client(ALICE, lambda present: with_quotas(ALICE, present, [("cpu", 1.0)]))
        assert caught.value.code == ErrorCode.INVALID_REQUEST

    in_world(test)
