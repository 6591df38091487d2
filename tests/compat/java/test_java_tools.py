"""Apache Kafka's own command-line tools, of 3.9.2 and of 4.3.0: the Java clients and Admin as their authors use them.

Each tool is a JVM of about a second, so a test walks through what one tool can do.
"""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Callable

import pytest

from tests.kit.peers import KAFKA_3, KAFKA_4, run_tool
from tests.kit.subject import Subject

pytestmark = pytest.mark.java


@pytest.fixture(params=[KAFKA_3, KAFKA_4])
def tool(request: pytest.FixtureRequest, bootstrap: str) -> Callable[..., str]:
    """`tool(name, *args)`: runs it with --bootstrap-server, expects success, returns what it printed."""

    def run(name: str, *args: str, input: str | None = None, fails: bool = False, connect: str = "--bootstrap-server") -> str:
        done = run_tool(request.param, name, *((connect, bootstrap) if connect else ()), *args, input=input, timeout=180)
        assert fails == (done.returncode != 0), f"{name}: {done.returncode}\n{done.stdout}\n{done.stderr}"
        if not fails:
            assert "Exception" not in done.stderr + done.stdout, done.stderr + done.stdout
        return done.stdout + done.stderr

    return run


def fresh() -> str:
    return f"java-{uuid.uuid4().hex[:8]}"


def test_topics(tool: Callable[..., str], subject: Subject) -> None:
    """Create, list, describe, alter, delete."""
    name = fresh()
    assert f"Created topic {name}" in tool(
        "TopicCommand", "--create", "--topic", name, "--partitions", "3", "--config", "retention.ms=99999"
    )
    assert name in tool("TopicCommand", "--list").split()
    described = tool("TopicCommand", "--describe", "--topic", name)
    copies = subject.replicas
    assert re.search(
        rf"Topic: {name}\s+TopicId: \S{{22}}\s+PartitionCount: 3\s+ReplicationFactor: {copies}\s+Configs: .*retention.ms=99999",
        described,
    )
    some = rf"\d(?:,\d){{{copies - 1}}}"
    assert len(re.findall(rf"Topic: {name}\s+Partition: \d\s+Leader: \d\s+Replicas: {some}\s+Isr: {some}", described)) == 3
    tool("TopicCommand", "--alter", "--topic", name, "--partitions", "5")
    assert "PartitionCount: 5" in tool("TopicCommand", "--describe", "--topic", name)
    tool("TopicCommand", "--delete", "--topic", name)
    assert name not in tool("TopicCommand", "--list").split()


def test_topic_refusals(tool: Callable[..., str], topic: str) -> None:
    assert "TopicExistsException" in tool("TopicCommand", "--create", "--topic", topic, fails=True)
    assert "retention.sm" in tool("TopicCommand", "--create", "--topic", fresh(), "--config", "retention.sm=1", fails=True)
    assert "does not exist" in tool("TopicCommand", "--describe", "--topic", fresh(), fails=True)


def test_configs(tool: Callable[..., str], topic: str) -> None:
    entity = ("--entity-type", "topics", "--entity-name", topic)
    tool("ConfigCommand", "--alter", *entity, "--add-config", "retention.ms=4242,cleanup.policy=[compact,delete]")
    described = tool("ConfigCommand", "--describe", *entity)
    assert "retention.ms=4242" in described
    assert "cleanup.policy=compact,delete" in described
    tool("ConfigCommand", "--alter", *entity, "--delete-config", "retention.ms")
    described = tool("ConfigCommand", "--describe", "--all", *entity)
    assert "retention.ms=604800000" in described
    assert re.search(
        r"segment.bytes=1073741824 sensitive=false synonyms=\{DEFAULT_CONFIG:log.segment.bytes=1073741824\}", described
    )
    broker = ("--entity-type", "brokers", "--entity-name", "1")
    assert "num.partitions=" in tool("ConfigCommand", "--describe", "--all", *broker)
    tool("ConfigCommand", "--alter", *broker, "--add-config", "log.cleaner.threads=2")
    assert "log.cleaner.threads=2" in tool("ConfigCommand", "--describe", *broker)
    tool("ConfigCommand", "--alter", *broker, "--delete-config", "log.cleaner.threads")
    assert "Invalid" in tool("ConfigCommand", "--alter", *entity, "--add-config", "retention.ms=soon", fails=True)


def test_console(tool: Callable[..., str], topic: str) -> None:
    """Keys, headers, every codec, read by partition and offset (no group)."""
    sent = []
    for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
        lines = [f"h:{codec}\tk{number}\tvalue {number} {codec}" for number in range(3)]
        properties = ("--property", "parse.key=true", "--property", "parse.headers=true")
        tool("ConsoleProducer", "--topic", topic, "--compression-codec", codec, *properties, input="\n".join(lines) + "\n")
        sent += lines
    printing = ["print.key", "print.headers", "print.offset"]
    properties_read = [word for name in printing for word in ("--property", f"{name}=true")]
    read = tool(
        "ConsoleConsumer", "--topic", topic, "--partition", "0", "--offset", "earliest", "--max-messages", "15",
        "--timeout-ms", "120000", *properties_read,
    )  # fmt: skip
    assert [line for line in read.splitlines() if line.startswith("Offset:")] == [
        f"Offset:{n}\t{line}" for n, line in enumerate(sent)
    ]
    last = tool(
        "ConsoleConsumer", "--topic", topic, "--partition", "0", "--offset", "14", "--max-messages", "1", "--timeout-ms", "120000"
    )
    assert "value 2 zstd" in last


def test_verifiable_producer_and_offsets(tool: Callable[..., str], topic: str) -> None:
    said = tool("VerifiableProducer", "--topic", topic, "--max-messages", "500", "--acks", "-1")
    events = [json.loads(line) for line in said.splitlines() if line.startswith("{")]
    assert sum(event["name"] == "producer_send_success" for event in events) == 500
    assert [event["offset"] for event in events if event["name"] == "producer_send_success"] == list(range(500))

    def offsets(time: str) -> str:
        return tool("GetOffsetShell", "--topic", topic, "--time", time).strip()

    assert offsets("-1") == f"{topic}:0:500"
    assert offsets("earliest") == f"{topic}:0:0"
    assert re.fullmatch(rf"{topic}:0:\d+", offsets("max-timestamp"))
    assert offsets("1") == f"{topic}:0:0"


def test_delete_records_and_log_dirs(tool: Callable[..., str], topic: str, tmp_path: object) -> None:
    tool("ConsoleProducer", "--topic", topic, input="a\nb\nc\nd\n")
    plan = tmp_path / "plan.json"  # type: ignore[operator]
    plan.write_text(json.dumps({"partitions": [{"topic": topic, "partition": 0, "offset": 3}], "version": 1}))
    assert "low_watermark: 3" in tool("DeleteRecordsCommand", "--offset-json-file", str(plan))
    assert tool("GetOffsetShell", "--topic", topic, "--time", "-2").strip() == f"{topic}:0:3"
    said = tool("LogDirsCommand", "--describe", "--topic-list", topic)
    found = json.loads(next(line for line in said.splitlines() if line.startswith("{")))
    (partition,) = (each for directory in found["brokers"][0]["logDirs"] for each in directory["partitions"])
    assert partition["partition"] == f"{topic}-0"
    assert partition["size"] > 0
    assert (partition["offsetLag"], partition["isFuture"]) == (0, False)


def test_perf_tools(tool: Callable[..., str], topic: str, bootstrap: str) -> None:
    """ProducerPerformance at every acks, EndToEndLatency (it assigns, it does not subscribe). No figure is judged."""
    for acks in ("0", "1", "all"):
        said = tool(
            "ProducerPerformance", "--topic", topic, "--num-records", "3000", "--record-size", "100", "--throughput", "-1",
            "--producer-props", f"bootstrap.servers={bootstrap}", f"acks={acks}", connect="",
        )  # fmt: skip
        assert "3000 records sent" in said
    assert tool("GetOffsetShell", "--topic", topic).strip() == f"{topic}:0:9000"


def test_api_versions(tool: Callable[..., str], bootstrap: str) -> None:
    said = tool("BrokerApiVersionsCommand")
    usable = dict(re.findall(r"(\w+)\((?:\d+)\): .*\[usable: (\d+)\]", said))
    assert {"Produce", "Fetch", "ListOffsets", "Metadata", "ApiVersions", "InitProducerId", "DescribeConfigs"} <= usable.keys()
    for address in bootstrap.split(","):
        assert re.search(rf"^{re.escape(address)} \(id: \d", said, re.MULTILINE), said


def test_cluster_id(request: pytest.FixtureRequest, bootstrap: str) -> None:
    """ClusterTool wants its command first."""
    for version in (KAFKA_3, KAFKA_4):
        done = run_tool(version, "ClusterTool", "cluster-id", "--bootstrap-server", bootstrap)
        assert re.search(r"Cluster ID: \S{22}", done.stdout), done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("version", [KAFKA_3, KAFKA_4])
def test_end_to_end_latency_tool(bootstrap: str, topic: str, version: str) -> None:
    """It assigns its partitions, yet commits at the end; 4.x takes named options, 3.9 positions."""
    named = [
        "--bootstrap-server",
        bootstrap,
        "--topic",
        topic,
        "--num-records",
        "200",
        "--producer-acks",
        "all",
        "--record-size",
        "50",
    ]
    args = named if version == KAFKA_4 else [bootstrap, topic, "200", "all", "50"]
    done = run_tool(version, "EndToEndLatency", *args, timeout=180)
    assert done.returncode == 0, done.stderr
    assert "Avg latency" in done.stdout
    assert "Percentiles" in done.stdout
