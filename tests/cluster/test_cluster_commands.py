"""`ottla cluster status` and `ottla reassign` on three brokers (F56, F67)."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from tests.kit.cluster import WAIT_S, Cluster, until


def ottla(cluster: Cluster, *words: str, code: int = 0, stdin: str = "") -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-P", "-m", "ottla", *words, "-b", cluster.bootstrap]
    done = subprocess.run(command, capture_output=True, text=True, timeout=2 * WAIT_S, check=False, input=stdin)
    assert done.returncode == code, done.stdout + done.stderr
    return done


def test_status_shows_who_leads_and_how_far_each_replica_is(cluster: Callable[..., Cluster]) -> None:
    three = cluster(3)
    three.create_topic_at("s", [[1, 2, 3], [2, 3, 1]])
    three.produce("s", [b"x"] * 50, partitioner="consistent")
    status = json.loads(ottla(three, "cluster", "status", "--json").stdout)
    assert status["controller_id"] == three.controller()
    assert [broker["id"] for broker in status["brokers"] if broker["alive"]] == [1, 2, 3]
    mine = {each["partition"]: each for each in status["partitions"] if each["topic"] == "s"}
    assert [mine[0]["leader"], mine[1]["leader"]] == [1, 2]
    assert sum(each["high_watermark"] for each in mine.values()) == 50
    for each in mine.values():
        assert set(each["log_end_offsets"].values()) == {each["high_watermark"]}
    assert (status["under_replicated_count"], status["offline_count"]) == (0, 0)

    three.create_topic_at("alone", [[3]])
    three.brokers[3].kill()
    until(lambda: three.leader("alone") == -1, "nobody can lead it")
    until(lambda: 3 not in three.isr("s", 0) | three.isr("s", 1), "the dead broker is not in sync")

    def shown() -> list[list[str]]:
        """Of the broker that is asked, which hears of it after the tree."""
        text = ottla(three, "cluster", "status", "--problems").stdout
        rows = [line.split() for line in text.splitlines() if line.startswith(("alone", "s "))]
        return [[*row[:3], row[-1]] for row in rows] if "2 brokers" in text and "down" in text else []

    until(
        lambda: (
            (rows := shown())[0] == ["alone", "0", "none", "offline"]
            and len(rows) == 3
            and {row[-1] for row in rows[1:]} == {"under-replicated"}
        ),
        "what is wrong is shown",
        2 * WAIT_S,
    )


def test_plan_execute_status_and_the_way_back(three: Cluster, tmp_path: Path) -> None:
    three.create_topic_at("moved", [[1, 2]] * 6)
    three.produce("moved", [b"x" * 100] * 300)
    plan, back = tmp_path / "plan.json", tmp_path / "back.json"
    planned = ottla(three, "reassign", "plan", "moved", "-o", str(plan))
    assert "would be copied" in planned.stderr
    ottla(three, "reassign", "execute", str(plan), "--throttle", "10000000", "--save-current", str(back))
    until(lambda: json.loads(ottla(three, "reassign", "status", str(plan), "--json").stdout)["done"], "all have moved")
    replicas = three.json("/brokers/topics/moved")["partitions"]
    assert Counter(broker for brokers in replicas.values() for broker in brokers) == {1: 4, 2: 4, 3: 4}
    # Any broker answers the next ones, as far as it has heard.
    for kind, name in (("topic", "moved"), ("broker", "3")):
        words = ("config", "describe", kind, name, "--overrides")
        until(lambda words=words: "throttled" not in ottla(three, *words).stdout, "no limit is left")
    until(lambda: ottla(three, "reassign", "plan", "moved").stderr.endswith("6 partitions: nothing to change\n"), "nothing to do")
    returned = ottla(three, "reassign", "execute", "-", "--wait", stdin=back.read_text()).stdout
    assert returned == "5 partitions: reassignment done\n"  # one stood well from the start
    assert set(map(tuple, three.json("/brokers/topics/moved")["partitions"].values())) == {(1, 2)}


def test_a_throttled_move_is_seen_and_cancelled(three: Cluster, tmp_path: Path) -> None:
    """A second plan has a throttle beside the first, and takes it off with itself only."""
    plans: dict[str, str] = {}
    for topic in ("slow", "beside"):
        three.create_topic_at(topic, [[1]])
        # However low the rate, a megabyte goes through every eleven seconds, the window of the quota.
        three.produce(topic, [bytes(range(256)) * 40] * 2000)
        path = tmp_path / f"{topic}.json"
        path.write_text(json.dumps({"version": 1, "partitions": [{"topic": topic, "partition": 0, "replicas": [2]}]}))
        plans[topic] = str(path)
        ottla(three, "reassign", "execute", plans[topic], "--throttle", "1000")
    moves = json.loads(ottla(three, "reassign", "status", "--json").stdout)["moving"]
    assert [(move["topic"], move["adding"], move["removing"]) for move in moves] == [("beside", [2], [1]), ("slow", [2], [1])]
    assert "slow" in ottla(three, "reassign", "status", plans["slow"]).stdout
    for topic, freed in (("beside", {"topic beside"}), ("slow", {"topic slow", "broker 1", "broker 2"})):
        cancelled = json.loads(ottla(three, "reassign", "cancel", plans[topic], "--json").stdout)
        assert cancelled["cancelled"] == [{"topic": topic, "partition": 0}]
        assert set(cancelled["unthrottled"]) == freed
        assert three.json(f"/brokers/topics/{topic}")["partitions"] == {"0": [1]}
    until(lambda: ottla(three, "reassign", "status").stdout == "no reassignment is running\n", "nothing moves")


def test_what_cannot_be_is_said_before_anything_is_done(three: Cluster, tmp_path: Path) -> None:
    three.create_topic_at("kept", [[1]])
    plan = tmp_path / "plan.json"
    plan.write_text(json.dumps({"version": 1, "partitions": [{"topic": "kept", "partition": 0, "replicas": [9]}]}))
    assert "broker 9 does not exist" in ottla(three, "reassign", "execute", str(plan), code=1).stderr
    assert "broker 8 does not exist" in ottla(three, "reassign", "plan", "kept", "--brokers", "1,8", code=1).stderr
    assert "did you mean kept" in ottla(three, "reassign", "plan", "kep", code=1).stderr
    assert "pass either topics" in ottla(three, "reassign", "plan", code=2).stderr
    assert (
        "needs 4 brokers for its replicas, but only 3 are given"
        in ottla(three, "reassign", "plan", "kept", "-r", "4", code=1).stderr
    )
    assert "cannot read" in ottla(three, "reassign", "execute", str(tmp_path / "none"), code=2).stderr


def test_a_member_hears_why_its_group_has_no_coordinator(cluster: Callable[..., Cluster]) -> None:
    few = cluster(1)
    few.create_topic("t", replicas=1)
    few.produce("t", [b"one"])
    # As settings.md says: the offsets topic waits for as many brokers as it has replicas.
    reason = "group g has no coordinator: the internal topic __consumer_offsets cannot be created: "
    told = ottla(few, "consume", "t", "-g", "g", code=1).stderr
    assert f"error: {reason}" in told
    assert f"error: {reason}" in ottla(few, "group", "describe", "g", code=1).stderr
    assert "as many run as offsets.topic.replication.factor says (3 unless it is set); 1 runs now" in told
    command = [sys.executable, "-P", "-m", "ottla", "consume", "t", "-f", "-g", "g", "-b", few.bootstrap]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as member:
        assert member.stdout is not None
        assert member.stderr is not None
        try:
            assert reason in member.stderr.readline()
            few.add(2)
            few.add(3)
            assert member.stdout.readline() == "one\n"
        finally:
            member.kill()
