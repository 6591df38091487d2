"""Settings of single groups (resource type GROUP), as Apache Kafka 4.3 answers, over the wire and over a restart."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from ottla.broker.app import Broker
from ottla.cluster.requests import ConfigOperation
from ottla.cluster.settings import BrokerSettings
from ottla.errors import ErrorCode
from ottla.metrics import Counters
from ottla.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from ottla.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from ottla.protocol.messages.find_coordinator import FindCoordinatorRequest
from ottla.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from ottla.protocol.messages.list_config_resources import ListConfigResourcesRequest
from ottla.runtime.loop import real_world, run

GROUP, GROUP_SOURCE, DEFAULT_SOURCE = 32, 8, 5
SET, DELETE = ConfigOperation.SET, ConfigOperation.DELETE
SESSION, HEARTBEAT = "consumer.session.timeout.ms", "consumer.heartbeat.interval.ms"


async def alter(connection: Any, group: str, *changes: tuple[str, int, str | None]) -> tuple[int, str | None]:
    configs = [AlterableConfig(name=name, config_operation=operation, value=value) for name, operation, value in changes]
    resource = AlterConfigsResource(resource_type=GROUP, resource_name=group, configs=configs)
    response = await connection.call("incremental_alter_configs", 1, IncrementalAlterConfigsRequest(resources=[resource]))
    return response.responses[0].error_code, response.responses[0].error_message


async def described(connection: Any, group: str, name: str) -> tuple[str, int, list[tuple[str, str, int]]]:
    resource = DescribeConfigsResource(resource_type=GROUP, resource_name=group, configuration_keys=[name])
    response = await connection.call("describe_configs", 4, DescribeConfigsRequest(resources=[resource], include_synonyms=True))
    (config,) = response.results[0].configs
    return config.value, config.config_source, [(each.name, each.value, each.source) for each in config.synonyms]


async def listed(connection: Any) -> list[str]:
    response = await connection.call("list_config_resources", 1, ListConfigResourcesRequest(resource_types=[GROUP]))
    return [found.resource_name for found in response.config_resources]


def test_a_group_that_is_not_there_yet_has_settings_and_loses_them(play: Any) -> None:
    async def case(stage: Any) -> None:
        connection = await stage.connect()
        broker_has = (f"group.{SESSION}", "45000", DEFAULT_SOURCE)
        assert await described(connection, "g", SESSION) == ("45000", DEFAULT_SOURCE, [broker_has])
        assert await alter(connection, "g", (SESSION, SET, "50000")) == (0, None)
        own = (SESSION, "50000", GROUP_SOURCE)
        assert await described(connection, "g", SESSION) == ("50000", GROUP_SOURCE, [own, broker_has])
        assert await described(connection, "h", SESSION) == ("45000", DEFAULT_SOURCE, [broker_has])
        assert await listed(connection) == ["g"]
        assert await alter(connection, "g", (SESSION, DELETE, None)) == (0, None)
        assert await alter(connection, "h", (SESSION, DELETE, None)) == (0, None)
        assert await listed(connection) == []

    play(case)


@pytest.mark.parametrize(
    ("name", "value", "code", "word"),
    [
        (SESSION, "1", ErrorCode.INVALID_CONFIG, "below group.consumer.min.session.timeout.ms=45000"),
        (SESSION, "60001", ErrorCode.INVALID_CONFIG, "above group.consumer.max.session.timeout.ms=60000"),
        (SESSION, "soon", ErrorCode.INVALID_CONFIG, "not a whole number"),
        (HEARTBEAT, "4999", ErrorCode.INVALID_CONFIG, "below group.consumer.min.heartbeat.interval.ms"),
        ("consumer.session.timeout", "50000", ErrorCode.INVALID_CONFIG, SESSION),
        ("share.auto.offset.reset", "never", ErrorCode.INVALID_CONFIG, "by_duration"),
        ("share.auto.offset.reset", "by_duration:PT", ErrorCode.INVALID_CONFIG, "by_duration"),
        ("streams.num.standby.replicas", "3", ErrorCode.INVALID_CONFIG, "group.streams.max.standby.replicas=2"),
        (SESSION, None, ErrorCode.INVALID_REQUEST, "no value"),
    ],
)
def test_values_a_group_may_not_have(play: Any, name: str, value: str | None, code: int, word: str) -> None:
    async def case(stage: Any) -> None:
        connection = await stage.connect()
        refused, message = await alter(connection, "g", (name, SET, value))
        assert refused == code
        assert word in (message or "")
        assert (await alter(connection, "", (SESSION, SET, "50000")))[0] == ErrorCode.INVALID_REQUEST
        assert await listed(connection) == []
        assert await alter(connection, "g", ("share.auto.offset.reset", SET, "by_duration:P1DT2H0.5S")) == (0, None)

    play(case)


def test_members_are_told_the_pause_of_their_own_group_also_after_a_restart(tmp_path: Path) -> None:
    strange = "a group/with ../strange % name"

    async def beat(connection: Any, group: str, epoch: int) -> Any:
        joins = {"rebalance_timeout_ms": 60_000, "subscribed_topic_names": ["t"], "topic_partitions": []} if epoch == 0 else {}
        request = ConsumerGroupHeartbeatRequest(group_id=group, member_id="m", member_epoch=epoch, **joins)  # type: ignore[arg-type]
        return await connection.call("consumer_group_heartbeat", 1, request)

    async def main() -> None:
        from ottla.client.connection import ClientConnection

        for life in range(2):
            world = real_world(Counters())
            settings = BrokerSettings.parse({"log.dirs": str(tmp_path), "listeners": "PLAINTEXT://127.0.0.1:0"})
            broker = Broker(settings, world, counters=Counters())
            await broker.start()
            connection = await ClientConnection.open(world.network, "127.0.0.1", broker.bound_ports["PLAINTEXT"])
            await connection.call("find_coordinator", 3, FindCoordinatorRequest(key="g"))
            while (first := await beat(connection, strange, 0)).error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
                await asyncio.sleep(0.01)
            if life == 0:
                assert first.heartbeat_interval_ms == 5000
                assert await alter(connection, strange, (HEARTBEAT, SET, "7000"), (SESSION, SET, "50000")) == (0, None)
            told = await beat(connection, strange, first.member_epoch)
            assert (told.error_code, told.heartbeat_interval_ms) == (0, 7000)
            assert (await beat(connection, "another", 0)).heartbeat_interval_ms == 5000
            assert await listed(connection) == [strange]
            connection.close()
            await broker.stop()

    run(main())
