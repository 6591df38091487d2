"""The metrics listener of a broker: what it tells is what clients did."""

from __future__ import annotations

import asyncio
import json
import re
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from ottla.broker.app import Broker, StartupError
from ottla.broker.coordinators.shard_host import HostedShard
from ottla.cluster.settings import BrokerSettings, SettingsError
from ottla.coordinator.group.shard import GroupShard
from ottla.errors import ErrorCode
from ottla.metrics.table import METRICS, OF_ZOOKEEPER
from ottla.protocol.messages.alter_client_quotas import AlterClientQuotasRequest, EntityData, EntryData, OpData
from ottla.protocol.messages.api_versions import ApiVersionsRequest
from ottla.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, PartitionData
from ottla.protocol.messages.find_coordinator import FindCoordinatorRequest
from ottla.protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitRequestPartition, OffsetCommitRequestTopic
from ottla.runtime.loop import real_world
from ottla.security.quotas import PRODUCE
from ottla.types import TopicPartition
from tests.broker.conftest import Play, Stage
from tests.kit.wait import until_async

METRICS_ON = {"metrics_listener": "127.0.0.1:0"}
NOT_ALWAYS = {metric.name for metric in OF_ZOOKEEPER} | {
    "kafka_server_fetcherlagmetrics_consumerlag",
    "kafka_server_replicafetchermanager_maxlag",
    "kafka_server_replicafetchermanager_minfetchrate",
    "kafka_server_quota_byte_rate",
    "kafka_server_quota_request_time",
    "kafka_server_quota_throttle_time",
    "ottla_certificate_expiry_timestamp_seconds",
}
"""Rows of what this broker does not have: a cluster, quotas, TLS."""

Told = dict[tuple[str, frozenset[tuple[str, str]]], float]


async def page(stage: Stage, path: str, accept: str = "") -> tuple[int, str]:
    """Status and body."""
    assert stage.broker.monitor is not None
    host, _, port = stage.broker.monitor.address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(f"GET {path} HTTP/1.1\r\nAccept: {accept}\r\n\r\n".encode())
    head, _, body = (await reader.read()).decode().partition("\r\n\r\n")
    writer.close()
    return int(head.split(" ")[1]), body


async def told(stage: Stage) -> Told:
    status, text = await page(stage, "/metrics")
    assert status == 200
    families = text_string_to_metric_families(text)
    return {(sample.name, frozenset(sample.labels.items())): sample.value for each in families for sample in each.samples}


def value(found: Told, name: str, **labels: str) -> float:
    return found[name, frozenset(labels.items())]


def size_of(data: PartitionData) -> int:
    assert isinstance(data.records, (bytes, bytearray, memoryview))
    return len(data.records)


def traffic(found: Told, name: str, **labels: str) -> float:
    return value(found, f"kafka_server_brokertopicmetrics_{name}_total", **labels)


def test_records_and_bytes_are_counted_by_topic_and_in_all(play: Play) -> None:
    async def case(stage: Stage) -> None:
        await stage.topic("t")
        await stage.topic("other", cleanup_policy="compact", max_message_bytes="2000")
        connection = await stage.connect()
        batch = stage.batch(b"one", b"two", b"three")
        for _ in range(4):
            assert (await stage.produce(connection, batch)).error_code == 0
        assert (await stage.produce(connection, stage.batch(b"x"), topic="other")).error_code == 0
        read = await stage.fetch(connection, 0)
        found = await told(stage)
        assert traffic(found, "messagesin", topic="t") == 12
        assert traffic(found, "messagesin", topic="other") == 1
        assert traffic(found, "messagesin") == 13
        assert traffic(found, "bytesin", topic="t") == 4 * len(batch)
        assert traffic(found, "bytesout", topic="t") == size_of(read) == traffic(found, "bytesout")
        assert traffic(found, "totalproducerequests", topic="t") == 4
        assert traffic(found, "totalfetchrequests", topic="t") == 1

        bad = bytearray(batch)
        bad[-1] ^= 1
        assert (await stage.produce(connection, bytes(bad))).error_code == ErrorCode.CORRUPT_MESSAGE
        assert (
            await stage.produce(connection, stage.batch(b"v", key=None), topic="other")
        ).error_code == ErrorCode.INVALID_RECORD
        large = stage.batch(b"x" * 3000)
        assert (await stage.produce(connection, large, topic="other")).error_code == ErrorCode.MESSAGE_TOO_LARGE
        found = await told(stage)
        assert traffic(found, "invalidmessagecrcrecords") == 1
        assert traffic(found, "nokeycompactedtopicrecords") == 1
        assert traffic(found, "bytesrejected", topic="other") == len(large)
        # A wrong CRC and a large batch are the client's own affair.
        assert traffic(found, "failedproducerequests", topic="other") == 1 == traffic(found, "failedproducerequests")
        assert traffic(found, "totalproducerequests", topic="other") == 3

        await stage.broker.controller.topic_requests.delete(["other"])
        found = await told(stage)
        assert traffic(found, "messagesin") == 13, "the broker's own counts go on"
        assert ("kafka_server_brokertopicmetrics_messagesin_total", frozenset({("topic", "other")})) not in found

    play(case, **METRICS_ON)


def test_requests_are_counted_by_api_version_and_error_and_timed_by_stage(play: Play) -> None:
    async def case(stage: Stage) -> None:
        await stage.topic("t")
        connection = await stage.connect()
        for version in (8, 9, 9):
            await stage.produce(connection, stage.batch(b"v" * 1000), version=version)
        await stage.produce(connection, stage.batch(b"v"), topic="absent")
        await stage.produce(connection, stage.batch(b"v"), acks=1)
        # One waits for records, one does not.
        await stage.fetch(connection, 0)
        waiting = asyncio.ensure_future(stage.fetch(connection, 4, max_wait_ms=60_000))
        await until_async(lambda: len(stage.broker.purgatory) == 1)
        other = await stage.connect()
        await stage.produce(other, stage.batch(b"v"))
        await waiting
        refused = await connection.call("find_coordinator", 3, FindCoordinatorRequest(key="k", key_type=9))
        assert refused.error_code == ErrorCode.INVALID_REQUEST
        assert (await stage.fetch(connection, 0, replica_id=7)).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER

        found = await told(stage)
        requests = "kafka_network_requestmetrics_requests_total"
        assert value(found, requests, request="Produce", version="8") == 1
        assert value(found, requests, request="Produce", version="9") == 5
        assert value(found, requests, request="FetchConsumer", version="12") == 2
        assert value(found, requests, request="FetchFollower", version="12") == 1
        assert value(found, requests, request="Fetch", version="12") == 3
        errors = "kafka_network_requestmetrics_errors_total"
        assert value(found, errors, request="Produce", error="NONE") == 5
        assert value(found, errors, request="Produce", error="UNKNOWN_TOPIC_OR_PARTITION") == 1
        assert value(found, errors, request="FindCoordinator", error="INVALID_REQUEST") == 1

        def time(stage: str, request: str, quantile: str = "0.999") -> float:
            return value(found, f"kafka_network_requestmetrics_{stage}timems", request=request, quantile=quantile)

        assert time("remote", "FetchConsumer") > 0 == time("remote", "FetchConsumer", "0.50")
        assert 0 < time("local", "Produce") <= time("total", "Produce")
        assert time("throttle", "Produce") == 0
        assert (
            value(found, "kafka_network_requestmetrics_requestbytes", request="Produce", quantile="0.75")
            > 1000
            > value(found, "kafka_network_requestmetrics_requestbytes", request="FetchConsumer", quantile="0.999")
        )
        assert value(found, "ottla_request_time_seconds_bucket", request="Produce", le="+Inf") == 6
        assert value(found, "ottla_request_time_seconds_count", request="Produce") == 6
        assert value(found, "ottla_request_time_seconds_sum", request="Produce") > 0

    play(case, **METRICS_ON)


def test_a_large_reply_counts_once_it_is_sent(play: Play) -> None:
    async def case(stage: Stage) -> None:
        await stage.topic("t")
        connection = await stage.connect()
        for _ in range(4):
            await stage.produce(connection, stage.batch(b"v" * 900_000), acks=1)
        read = await stage.fetch(connection, 0, partition_max_bytes=50 << 20)
        assert size_of(read) > 3_600_000
        await stage.produce(connection, stage.batch(b"v"))
        found = await told(stage)
        sent = "kafka_network_requestmetrics_responsesendtimems"
        assert value(found, sent, request="FetchConsumer", quantile="0.50") > 0
        assert value(found, "ottla_request_time_seconds_count", request="FetchConsumer") == 1

    play(case, **METRICS_ON)


def test_a_throttled_request_tells_for_how_long(play: Play) -> None:
    async def case(stage: Stage) -> None:
        await stage.topic("t")
        connection = await stage.connect()
        entity, change = [EntityData(entity_type="user", entity_name=None)], [OpData(key=PRODUCE, value=100.0)]
        await connection.call("alter_client_quotas", 1, AlterClientQuotasRequest(entries=[EntryData(entity=entity, ops=change)]))
        await stage.produce(connection, stage.batch(b"v" * 5000))
        found = await told(stage)
        throttled = "kafka_network_requestmetrics_throttletimems"
        assert value(found, throttled, request="Produce", quantile="0.50") > 10
        assert value(found, "ottla_requests_throttled_total") == 1
        bucket = {"resource": "Produce", "user": "ANONYMOUS", "clientId": ""}
        assert value(found, "kafka_server_quota_byte_rate", **bucket) > 100
        assert value(found, "kafka_server_quota_throttle_time", **bucket) > 10

    play(case, **METRICS_ON)


def test_connections_are_told_one_by_one(play: Play) -> None:
    async def case(stage: Stage) -> None:
        await stage.topic("t")
        connection = await stage.connect()
        named = ApiVersionsRequest(client_software_name="tester", client_software_version="1.2")
        await connection.call("api_versions", 3, named)
        await stage.produce(connection, stage.batch(b"v" * 500))
        silent = await stage.raw()
        await until_async(lambda: len(stage.broker.server) == 2)
        status, text = await page(stage, "/connections")
        assert status == 200
        first, second = json.loads(text)
        assert (first["software_name"], first["software_version"]) == ("tester", "1.2")
        assert (first["listener"], first["address"], first["principal"]) == ("PLAINTEXT", "127.0.0.1", "User:ANONYMOUS")
        assert first["requests"] >= 2
        assert first["bytes_in"] > 500
        assert first["bytes_out"] > 0
        assert second["port"] == silent.writer.get_extra_info("sockname")[1]
        assert (second["software_name"], second["requests"], second["bytes_in"]) == ("unknown", 0, 0)

        found = await told(stage)
        listener = {"listener": "PLAINTEXT", "networkProcessor": "0"}
        assert value(found, "kafka_server_socket_server_metrics_connection_count", **listener) == 2
        software = {"clientSoftwareName": "tester", "clientSoftwareVersion": "1.2", "listener": "PLAINTEXT"}
        assert value(found, "kafka_server_socket_server_metrics_connections_software", **software) == 1

    play(case, **METRICS_ON)


def test_a_waiting_request_names_its_partitions(play: Play) -> None:
    async def case(stage: Stage) -> None:
        await stage.topic("t", 2)
        connection = await stage.connect()
        topic = FetchTopic(topic="t", partitions=[FetchPartition(partition=1, partition_max_bytes=1000)])
        request = FetchRequest(max_wait_ms=60_000, min_bytes=1, topics=[topic])
        waiting = asyncio.ensure_future(connection.call("fetch", 11, request))

        async def told_of() -> list[dict[str, Any]]:
            return [each for each in json.loads((await page(stage, "/connections"))[1]) if each["waits_in"]]

        while not (found := await told_of()):
            await asyncio.sleep(0)
        assert [(each["waits_in"], each["waits_for"]) for each in found] == [("fetch", {"t": [1]})]
        other = await stage.connect()
        await stage.produce(other, stage.batch(b"v"), partition=1)
        await waiting
        assert not await told_of()

    play(case, **METRICS_ON)


def test_replicas_and_logs_are_told_by_partition(play: Play) -> None:
    async def case(stage: Stage) -> None:
        await stage.topic("t", 2)
        connection = await stage.connect()
        for _ in range(3):
            await stage.produce(connection, stage.batch(b"v" * 100), partition=1)
        found = await told(stage)
        one, zero = {"topic": "t", "partition": "1"}, {"topic": "t", "partition": "0"}
        assert value(found, "kafka_log_log_logendoffset", **one) == 3
        assert value(found, "kafka_log_log_logendoffset", **zero) == 0
        assert value(found, "kafka_log_log_size", **one) > 300
        assert value(found, "kafka_log_log_numlogsegments", **one) == 1
        assert value(found, "kafka_cluster_partition_insyncreplicascount", **one) == 1
        assert value(found, "kafka_cluster_partition_underreplicated", **one) == 0
        assert value(found, "kafka_server_replicamanager_leadercount") == 2
        assert value(found, "kafka_server_replicamanager_offlinereplicacount") == 0
        assert value(found, "kafka_controller_kafkacontroller_activecontrollercount") == 1
        assert value(found, "kafka_controller_kafkacontroller_globalpartitioncount") == 2
        [path] = [dict(labels)["logDirectory"] for name, labels in found if name == "ottla_log_dir_free_bytes"]
        assert value(found, "ottla_log_dir_free_bytes", logDirectory=path) > 0
        assert value(found, "kafka_log_logmanager_logdirectoryoffline", logDirectory=path) == 0

        # A data directory that fails takes its replicas offline, and their logs from the page.
        stage.broker.partitions.data_dirs.fail(stage.broker.partitions.data_dirs.online()[0], OSError("a disk that fails"))
        found = await told(stage)
        assert value(found, "kafka_server_replicamanager_offlinereplicacount") == 2
        assert value(found, "kafka_log_logmanager_offlinelogdirectorycount") == 1
        assert value(found, "kafka_log_logmanager_logdirectoryoffline", logDirectory=path) == 1
        assert ("kafka_log_log_size", frozenset(one.items())) not in found

    play(case, **METRICS_ON)


def test_groups_are_told_by_state(play: Play) -> None:
    async def case(stage: Stage) -> None:
        await stage.topic("t")
        connection = await stage.connect()

        async def is_coordinator() -> bool:
            found = await connection.call("find_coordinator", 3, FindCoordinatorRequest(key="g1"))
            return bool(found.error_code == 0)

        await until_async(is_coordinator)
        topics = [
            OffsetCommitRequestTopic(name="t", partitions=[OffsetCommitRequestPartition(partition_index=0, committed_offset=0)])
        ]

        async def commits(group: str) -> bool:
            response = await connection.call("offset_commit", 8, OffsetCommitRequest(group_id=group, topics=topics))
            return bool(response.topics[0].partitions[0].error_code == 0)

        for group in ("g1", "g2"):
            await until_async(lambda group=group: commits(group))
        found = await told(stage)
        groups = "kafka_coordinator_group_groupmetadatamanager"
        assert value(found, f"{groups}_numgroups") == 2 == value(found, f"{groups}_numgroupsempty")
        assert value(found, f"{groups}_numgroupsstable") == 0
        assert value(found, f"{groups}_numoffsets") == 2
        assert value(found, "ottla_coordinator_groups", type="classic") == 2
        assert value(found, "ottla_coordinator_transactions", state="Ongoing") == 0

    play(case, **METRICS_ON)


def test_every_row_of_the_table_is_told_and_nothing_else(play: Play) -> None:
    async def case(stage: Stage) -> None:
        await stage.topic("t")
        connection = await stage.connect()
        await stage.produce(connection, stage.batch(b"v"))
        _, text = await page(stage, "/metrics")
        heads = set(re.findall(r"# TYPE (\S+) ", text))
        assert METRICS.keys() - heads == NOT_ALWAYS
        assert {name for name in heads if not {name, name.removesuffix("_count")} & METRICS.keys()} == set()
        _, text = await page(stage, "/metrics", "application/openmetrics-text")
        assert text.endswith("# EOF\n")

    play(case, **METRICS_ON)


def test_health_follows_the_life_of_the_broker(play: Play) -> None:
    async def case(stage: Stage) -> None:
        assert await page(stage, "/healthz") == (200, "ok\n")
        assert await page(stage, "/readyz") == (200, "ready\n")
        assert (await page(stage, "/absent"))[0] == 404
        found = await told(stage)
        assert value(found, "kafka_server_kafkaserver_brokerstate") == 3
        shards = stage.broker.groups.shards
        loading = HostedShard[GroupShard](TopicPartition("__consumer_offsets", 7), 0, lambda hosted, decision: None)
        shards._hosted[7] = loading
        assert await page(stage, "/readyz") == (503, "loading __consumer_offsets-7\n")
        del shards._hosted[7]
        stage.broker._stopping = True
        assert await page(stage, "/readyz") == (503, "the broker is stopping\n")

    play(case, **METRICS_ON)


def test_without_a_listener_nothing_is_measured(play: Play) -> None:
    async def case(stage: Stage) -> None:
        await stage.topic("t")
        connection = await stage.connect()
        await stage.produce(connection, stage.batch(b"v"))
        assert stage.broker.monitor is None
        [served] = stage.broker.server.connections()
        assert served.traffic is None
        assert served.header_cache is not None
        assert served.header_cache.measure is None
        assert all(partition.traffic is None for partition in stage.broker.partitions)

    play(case)


@pytest.mark.parametrize("wrong", ["9404", "here:port", "127.0.0.1:", "127.0.0.1:70000", "http://127.0.0.1:9404", "a b:1"])
def test_a_wrong_address_is_refused_at_the_start(wrong: str) -> None:
    with pytest.raises(SettingsError, match=r"metrics\.listener"):
        BrokerSettings.parse({"listeners": "PLAINTEXT://127.0.0.1:0", "metrics.listener": wrong})


def test_a_port_in_use_is_told_at_the_start(play: Play, tmp_path: Any) -> None:
    async def case(stage: Stage) -> None:
        assert stage.broker.monitor is not None
        address = stage.broker.monitor.address
        settings = {"listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": str(tmp_path / "second"), "metrics.listener": address}
        second = Broker(BrokerSettings.parse(settings), real_world(stage.counters))
        with pytest.raises(StartupError) as raised:
            await second.start()
        assert str(raised.value) == f"cannot listen on metrics.listener={address}: another program uses that port"

    play(case, **METRICS_ON)
