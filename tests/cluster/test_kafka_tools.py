"""Kafka's own tools, of 3.9 and 4.3, on a cluster of ours: topics, reassignment, elections, the shell on the tree (F59, F69)."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from ottla.protocol.messages.describe_client_quotas import ComponentData, DescribeClientQuotasRequest
from ottla.protocol.messages.describe_user_scram_credentials import DescribeUserScramCredentialsRequest, UserName
from ottla.protocol.messages.list_groups import ListGroupsRequest
from tests.kit.cluster import WAIT_S, Cluster, until
from tests.kit.peers import run_tool

VERSIONS = ("3.9.2", "4.3.0")

TOOLS = {
    "topics": "org.apache.kafka.tools.TopicCommand",
    "reassign": "org.apache.kafka.tools.reassign.ReassignPartitionsCommand",
    "elect": "org.apache.kafka.tools.LeaderElectionCommand",
    "configs": "kafka.admin.ConfigCommand",
    "acls": "kafka.admin.AclCommand",
    "shell": "org.apache.zookeeper.ZooKeeperMain",
    "dump": "kafka.tools.DumpLogSegments",
}


def tool(name: str, *arguments: str, version: str = "3.9.2") -> str:
    return run_tool(version, TOOLS[name], *arguments, timeout=120, check=True).stdout


@pytest.mark.parametrize("version", VERSIONS)
def test_a_topic_is_made_moved_and_led_by_kafkas_tools(three: Cluster, tmp_path: Path, version: str) -> None:
    server = ("--bootstrap-server", three.bootstrap)
    topic = f"t{version[0]}"

    def run(name: str, *arguments: str) -> str:
        return tool(name, *server, *arguments, version=version)

    run("topics", "--create", "--topic", topic, "--replica-assignment", "1:2,2:3,3:1")
    three.produce(topic, [b"x" * 100] * 300)
    plan = tmp_path / "plan.json"
    wanted = [{"topic": topic, "partition": number, "replicas": [3, 2]} for number in range(3)]
    plan.write_text(json.dumps({"version": 1, "partitions": wanted}))
    started = run("reassign", "--execute", "--reassignment-json-file", str(plan), "--throttle", "10000000")
    assert f"Successfully started partition reassignments for {topic}-0,{topic}-1,{topic}-2" in started
    done = ""
    while done.count("is completed") < 3:
        done = run("reassign", "--verify", "--reassignment-json-file", str(plan))
    assert f"Clearing topic-level throttles on topic {topic}" in done
    run("elect", "--election-type", "preferred", "--all-topic-partitions")
    # Any broker describes it, as far as it has heard.
    until(lambda: run("topics", "--describe", "--topic", topic).count("Leader: 3\tReplicas: 3,2") == 3, "3 leads", 2 * WAIT_S)
    shown = tool("shell", "-server", three.connect, "get", f"/brokers/topics/{topic}")
    assert '"partitions":{"0":[3,2],"1":[3,2],"2":[3,2]}' in shown


@pytest.mark.parametrize("version", VERSIONS)
def test_a_slow_move_is_listed_and_cancelled_by_kafkas_tool(three: Cluster, tmp_path: Path, version: str) -> None:
    server = ("--bootstrap-server", three.bootstrap)
    topic = f"slow{version[0]}"
    three.create_topic_at(topic, [[1]])
    # However low the rate, a fetch of a megabyte goes through every eleven seconds, the window of the quota: 4 MB were moved
    # before two JVMs had come up on a busy machine.
    three.produce(topic, [bytes(range(256)) * 40] * 2000)
    plan = tmp_path / "plan.json"
    plan.write_text(json.dumps({"version": 1, "partitions": [{"topic": topic, "partition": 0, "replicas": [2]}]}))
    file = ("--reassignment-json-file", str(plan))
    tool("reassign", *server, "--execute", *file, "--throttle", "1000", version=version)
    listed = tool("reassign", *server, "--list", version=version)
    assert f"{topic}-0: replicas: 2,1. adding: 2. removing: 1." in listed
    cancelled = tool("reassign", *server, "--cancel", *file, version=version)
    assert f"Successfully cancelled partition reassignment for: {topic}-0" in cancelled
    assert three.json(f"/brokers/topics/{topic}")["partitions"] == {"0": [1]}


@pytest.mark.slow
@pytest.mark.parametrize("version", VERSIONS)
def test_r16_who_was_left_behind_leads_when_kafkas_tool_asks_for_it(cluster: Callable[..., Cluster], version: str) -> None:
    two = cluster(2)
    leader = two.controller()
    behind = 3 - leader
    two.create_topic_at("t", [[behind, leader]])
    two.brokers[behind].stop()
    until(lambda: two.isr("t") == {leader} and two.leader("t") == leader, "one is left")
    two.produce("t", [b"x"] * 10)
    two.brokers[leader].kill()
    two.brokers[behind].start()
    until(lambda: two.leader("t") == -1, "nobody leads")
    epoch = two.state("t")["leader_epoch"]
    one = ("--topic", "t", "--partition", "0", "--bootstrap-server", two.brokers[behind].address)
    told = tool("elect", "--election-type", "unclean", *one, version=version)
    assert "Successfully completed leader election (UNCLEAN) for partitions t-0" in told
    until(lambda: two.leader("t") == behind, "the one that was left behind leads")
    assert (two.isr("t"), two.state("t")["leader_epoch"] > epoch) == ({behind}, True)
    again = tool("elect", "--election-type", "unclean", *one, version=version)
    assert "Valid replica already elected for partitions t-0" in again


def test_users_and_quotas_are_written_by_kafkas_tool_and_told_by_every_broker(three: Cluster) -> None:
    """F59: straight into ZooKeeper (as before the first broker is there), and by a broker; every broker tells of both."""
    entity = ("--entity-type", "users", "--entity-name", "tool user")
    secret = "SCRAM-SHA-256=[iterations=4096,password=secret]"
    tool("configs", "--zookeeper", three.connect, "--alter", "--add-config", secret, *entity)
    written = three.json("/config/users/tool%20user")["config"]["SCRAM-SHA-256"]
    at_one = ("--bootstrap-server", three.brokers[1].address)
    tool("configs", *at_one, "--alter", "--add-config", "producer_byte_rate=4096,request_percentage=25.5", *entity)
    assert three.json("/config/users/tool%20user") == {
        "version": 1,
        "config": {"SCRAM-SHA-256": written, "producer_byte_rate": "4096", "request_percentage": "25.5"},
    }
    quotas = {"producer_byte_rate": 4096.0, "request_percentage": 25.5}
    for number in three.brokers:
        until(lambda number=number: _users(three, number) == {"tool user": [(1, 4096)]}, "the credential is known")
        until(lambda number=number: _quotas(three, number) == quotas, "the quotas too")
    told = tool("configs", "--bootstrap-server", three.brokers[2].address, "--describe", *entity)
    assert "producer_byte_rate=4096.0" in told
    assert "SCRAM-SHA-256=iterations=4096" in told


def test_qu01_quotas_of_kafkas_tool_are_enforced_by_every_broker(three: Cluster) -> None:
    """Of a client id and of all users, by a broker; of all users also as a broker of Kafka 3.9 writes them into ZooKeeper."""
    client, users = ("--entity-type", "clients", "--entity-name", "test"), ("--entity-type", "users", "--entity-default")

    def throttled(number: int) -> bool:
        response = three.brokers[number].ask("list_groups", 4, ListGroupsRequest())
        return bool(response.throttle_time_ms == 1000)  # one sample

    def alter(change: str, quota: str, entity: tuple[str, ...]) -> None:
        tool("configs", "--bootstrap-server", three.brokers[1].address, "--alter", change, quota, *entity)

    def write() -> None:
        config = b'{"version":1,"config":{"request_percentage":"0.000001"}}'
        three.tree.create("/config/users/<default>", config)
        note = b'{"version":2,"entity_path":"users/<default>"}'
        three.tree.create("/config/changes/config_change_", note, sequence=True)

    for entity, limit in (
        (client, lambda: alter("--add-config", "request_percentage=0.000001", client)),
        (users, lambda: alter("--add-config", "request_percentage=0.000001", users)),
        (users, write),
    ):
        limit()
        for number in three.brokers:
            until(lambda number=number: throttled(number), f"broker {number} throttles")
        alter("--delete-config", "request_percentage", entity)
        for number in three.brokers:
            until(lambda number=number: not throttled(number), f"broker {number} throttles no more")


def _users(cluster: Cluster, number: int) -> dict[str, list[tuple[int, int]]]:
    told = cluster.brokers[number].ask(
        "describe_user_scram_credentials", 0, DescribeUserScramCredentialsRequest(users=[UserName(name="tool user")])
    )
    return {each.user: [(info.mechanism, info.iterations) for info in each.credential_infos] for each in told.results}


def _quotas(cluster: Cluster, number: int) -> dict[str, float]:
    component = ComponentData(entity_type="user", match_type=0, match="tool user")
    told = cluster.brokers[number].ask("describe_client_quotas", 1, DescribeClientQuotasRequest(components=[component]))
    (entry,) = told.entries
    return {value.key: value.value for value in entry.values}


@pytest.mark.slow
def test_access_entries_written_by_kafkas_tool_are_heard_by_every_broker(cluster: Callable[..., Cluster]) -> None:
    """F59: 3.9's tool writes them straight into ZooKeeper, in both of its forms; names as they are."""
    authorizer = "kafka.security.authorizer.AclAuthorizer"
    three = cluster(3, authorizer_class_name=authorizer, super_users="User:ANONYMOUS")
    by_hand = ("--authorizer-properties", f"zookeeper.connect={three.connect}")
    bob = ("--allow-principal", "User:bob", "--operation", "Read")
    tool("acls", *by_hand, "--add", *bob, "--topic", "orders")
    tool("acls", *by_hand, "--add", *bob, "--group", "*")
    tool("acls", *by_hand, "--add", *bob, "--topic", "ord", "--resource-pattern-type", "prefixed")
    tool("acls", *by_hand, "--remove", "--force", *bob, "--topic", "orders")
    said = (
        "Topic orders (LITERAL) changed: 1 entries",
        "Group * (LITERAL) changed: 1 entries",
        "Topic ord (PREFIXED) changed: 1 entries",
        "Topic orders (LITERAL) changed: 0 entries",
    )
    for broker in three.brokers.values():
        for line in said:
            until(lambda broker=broker, line=line: f"ACLs of {line}" in broker.output(), f"{broker.number}: {line}")


def test_a_topic_written_in_the_shell_is_served_and_a_mark_deletes_it(three: Cluster) -> None:
    """F59: what Kafka's controller watches, ours does."""
    node = '{"version":1,"partitions":{"0":[2,3],"1":[3,1]}}'
    tool("shell", "-server", three.connect, "create", "/brokers/topics/by-hand", node)
    until(lambda: [three.leader("by-hand", number) for number in (0, 1)] == [2, 3], "it has leaders")
    three.produce("by-hand", [b"x"] * 20)
    three.tree.create("/admin/delete_topics/by-hand")
    until(lambda: not three.tree.exists("/brokers/topics/by-hand") and not three.tree.get_children("/admin/delete_topics"))
    for number in (1, 2, 3):
        data = three.brokers[number].data
        until(lambda data=data: not list(data.glob("by-hand-[01]")), "its replicas are gone")
