"""`ottla elect`, `verify-replicas` and `log-dirs` on several brokers (F54, F56, F69)."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ottla.records.batch import RECORDS_AT, BatchInfo, read_batch_header, write_header
from tests.kit.cluster import Cluster, until
from tests.kit.ottla_command import Ottla


def verified(ottla: Ottla, *words: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(ottla.run("verify-replicas", *words, "--json").stdout)
    return found


def test_preferred_leaders(three: Cluster, tmp_path: Path) -> None:
    three.create_topic_at("led", [[1, 2], [2, 3]])
    ottla = Ottla(three.bootstrap)
    plan = {"version": 1, "partitions": [{"topic": "led", "partition": 0, "replicas": [2, 1]}]}
    ottla.ok("reassign", "execute", "-", "--wait", stdin=json.dumps(plan))
    until(lambda: three.json("/brokers/topics/led")["partitions"]["0"] == [2, 1], "the preferred leader is another one")
    assert three.leader("led", 0) == 1

    def known() -> bool:
        status = json.loads(ottla.ok("cluster", "status", "-t", "led", "--json"))
        return bool(status["partitions"][0]["replicas"] == [2, 1])

    until(known, "the broker that is asked knows it")
    assert "no leader" not in ottla.ok("elect", "preferred", "led:0")
    assert three.leader("led", 0) == 2
    until(
        lambda: "2 partitions led by the preferred" in ottla.run("elect", "preferred", "led").stderr, "nothing is left to elect"
    )
    assert json.loads(ottla.ok("elect", "preferred", "led", "--json")) == {"elections": [], "not_needed": 2}
    assert "1 partition with a leader" in ottla.run("elect", "unclean", "led:1").stderr
    assert "did you mean led" in ottla.fails("elect", "preferred", "lead")
    assert "pass either topics or --all-topics" in ottla.fails("elect", "unclean", code=2)


def test_an_unclean_leader(cluster: Callable[..., Cluster]) -> None:
    two = cluster(2, offsets_topic_replication_factor="1")
    two.create_topic_at("torn", [[1, 2]])
    two.produce("torn", [b"both"])
    two.brokers[2].kill()
    until(lambda: two.isr("torn") == {1}, "the dead broker is not in sync")
    two.produce("torn", [b"lost"])
    two.brokers[1].kill()
    two.brokers[2].start()
    ottla = Ottla(two.brokers[2].address)

    def offline() -> bool:
        (found,) = json.loads(ottla.ok("cluster", "status", "-t", "torn", "--json"))["partitions"]
        return bool(found["offline"])

    until(offline, "nobody in sync is left")
    refused = ottla.fails("elect", "preferred", "torn")
    assert "no leader was elected for torn-0" in refused
    assert "PREFERRED_LEADER_NOT_AVAILABLE" in ottla.run("elect", "preferred", "torn").stdout
    (alone,) = verified(ottla, "torn")
    assert alone["unreadable"] == {"-1": "the partition has no leader", "1": "its broker does not answer"}
    found = json.loads(ottla.run("doctor", "--skip", "clock", "--skip", "groups", "--json").stdout)["findings"]
    (finding,) = [each for each in found if each["check"] == "replicas" and "torn-0" in each["subject"]]
    assert finding["severity"] == "error"
    assert finding["mend"] == "start broker 1; if they are lost for good: ottla elect unclean torn:0 (loses records)"
    assert "broker 1" in [each["subject"] for each in found if each["check"] == "controller"]
    document = json.loads(ottla.ok("elect", "unclean", "torn", "--json"))
    assert [(each["partition"], each["error"]) for each in document["elections"]] == [(0, None)]
    until(lambda: two.leader("torn") == 2, "the replica that is alive leads")
    until(lambda: ottla.run("consume", "torn").stdout == "both\n", "it serves what it has")


def test_replicas_are_the_same(three: Cluster) -> None:
    three.create_topic_at("same", [[1, 2], [2, 3], [3, 1]])
    three.produce("same", [b"x" * 100] * 500, partitioner="consistent")
    ottla = Ottla(three.bootstrap)
    until(lambda: all(each["same"] for each in verified(ottla, "same")), "all followers have all")
    found = verified(ottla, "same")
    assert sum(each["end_offset"] for each in found) == 500
    assert all(each["batches"] for each in found if each["end_offset"])
    assert [set(each["lag"]) for each in found] == [{"1", "2"}, {"2", "3"}, {"1", "3"}]
    assert [line.split()[-1] for line in ottla.ok("verify-replicas", "same:0,2").splitlines()] == ["RESULT", "same", "same"]
    last = verified(ottla, "same", "--from", "-10")
    assert all(each["start_offset"] == max(0, each["end_offset"] - 10) for each in last)
    (directories,) = (each for each in json.loads(ottla.ok("log-dirs", "-t", "same", "--json")) if each["broker"] == 2)
    assert [each["partition"] for each in directories["log_dirs"][0]["replicas"]] == [0, 1]


def test_a_follower_that_differs(three: Cluster) -> None:
    """Batch 1 has another payload with the right CRC, batch 2 a payload that its CRC does not fit."""
    three.create_topic_at("bent", [[1, 2]])
    for number in range(4):
        three.produce("bent", [b"value-%d" % number])
    until(lambda: three.isr("bent") == {1, 2}, "the follower has all")
    follower = three.brokers[2]
    follower.stop()
    path = follower.data / "bent-0" / "00000000000000000000.log"
    log = bytearray(path.read_bytes())
    batches: list[BatchInfo] = []
    while not batches or batches[-1].end < len(log):
        batches.append(read_batch_header(log, batches[-1].end if batches else 0))
    for batch in batches[1:3]:
        log[batch.position + RECORDS_AT + 8] ^= 1
    write_header(log, batches[1])
    path.write_bytes(log)
    follower.start()
    until(lambda: three.isr("bent") == {1, 2}, "the follower is back")
    ottla = Ottla(three.bootstrap)
    (found,) = verified(ottla, "bent")
    assert [(each["offset"], each["replica"]) for each in found["differences"]] == [(1, 2), (2, 2)]
    assert "CRC" in found["differences"][0]["what"]
    assert "in replica 1" in found["differences"][0]["what"]
    assert found["differences"][1]["what"] == "offset 2: the content does not have the CRC of the batch"
    done = ottla.run("verify-replicas", "bent")
    assert done.returncode == 1
    assert "bent-0: replica 2: offset 2: the content" in done.stdout
    assert "1 partition with replicas that differ" in done.stderr
