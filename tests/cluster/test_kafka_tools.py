"""Apache Kafka 3.9's own tools on a cluster of ours: topics, reassignment, elections, the shell on the tree (F59, F69)."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

from cluster_kit import Cluster
from zookeeper import JARS

TOOLS = {
    "topics": "org.apache.kafka.tools.TopicCommand",
    "reassign": "org.apache.kafka.tools.reassign.ReassignPartitionsCommand",
    "elect": "org.apache.kafka.tools.LeaderElectionCommand",
    "shell": "org.apache.zookeeper.ZooKeeperMain",
}


def tool(name: str, *arguments: str) -> str:
    jars = ":".join(str(jar) for jar in sorted(JARS.glob("*.jar")) if "slf4j-simple" not in jar.name)
    command = ["java", "-Xmx200m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", jars, TOOLS[name], *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_a_topic_is_made_moved_and_led_by_kafkas_tools(three: Cluster, tmp_path: Path) -> None:
    server = ("--bootstrap-server", three.bootstrap)
    tool("topics", *server, "--create", "--topic", "t", "--replica-assignment", "1:2,2:3,3:1")
    three.produce("t", [b"x" * 100] * 300)
    plan = tmp_path / "plan.json"
    plan.write_text(
        json.dumps({"version": 1, "partitions": [{"topic": "t", "partition": n, "replicas": [3, 2]} for n in range(3)]})
    )
    started = tool("reassign", *server, "--execute", "--reassignment-json-file", str(plan), "--throttle", "10000000")
    assert "Successfully started partition reassignments for t-0,t-1,t-2" in started
    done = ""
    while done.count("is completed") < 3:
        done = tool("reassign", *server, "--verify", "--reassignment-json-file", str(plan))
    assert "Clearing topic-level throttles on topic t" in done
    tool("elect", *server, "--election-type", "preferred", "--all-topic-partitions")
    described = tool("topics", *server, "--describe", "--topic", "t")
    assert described.count("Leader: 3\tReplicas: 3,2") == 3
    shown = tool("shell", "-server", three.connect, "get", "/brokers/topics/t")
    assert '"partitions":{"0":[3,2],"1":[3,2],"2":[3,2]}' in shown
