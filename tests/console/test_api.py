"""Every endpoint answers, as its description says, and does what it says."""

from __future__ import annotations

import csv
import io
import json
import re
import shlex
import subprocess
import sys
from typing import Any
from urllib.parse import quote

import httpx
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from ottla.runtime.free_ports import free_port
from ottla.testing import Broker
from tests.console.running import RunningConsole, running_console
from tests.kit.ottla_command import Ottla
from tests.kit.peers import kcat
from tests.kit.subject import Subject
from tests.kit.wait import until


@pytest.fixture
def filled(console: RunningConsole, topic: str) -> str:
    """Nine records: n is in partition n % 3."""
    records = [
        {"key": f"k{n}", "value": {"n": n, "name": f"Ada {n}"}, "partition": n % 3, "timestamp": 1_700_000_000_000 + 1000 * n}
        for n in range(9)
    ]
    written = console.post(f"/api/topics/{topic}/records", {"records": records})["records"]
    assert [(each["partition"], each["offset"]) for each in written] == [(n % 3, n // 3) for n in range(9)]
    return topic


@pytest.fixture
def group(subject: Subject, filled: str) -> str:
    """Has read the first record of each partition, and has no members."""
    consumer = Consumer({"bootstrap.servers": subject.bootstrap_servers, "group.id": f"g-{filled}", "enable.auto.commit": False})
    consumer.commit(offsets=[TopicPartition(filled, index, 1) for index in range(3)], asynchronous=False)
    consumer.close()
    return f"g-{filled}"


def values(records: list[dict[str, Any]]) -> list[int]:
    return [json.loads(record["value"]["text"])["n"] for record in records]


def test_every_endpoint_has_a_test(console: RunningConsole) -> None:
    """The description that is served is that of the routes, and each operation is called somewhere in these tests."""
    served = console.request("GET", "/api/openapi.json").json()
    assert served == json.loads(json.dumps(console.description))
    named = {operation["operationId"] for path in served["paths"].values() for operation in path.values()}
    assert named == CALLED | TESTED_ELSEWHERE


CALLED = {
    "get_session", "get_overview", "live_overview", "get_audit", "list_brokers", "get_broker", "get_cluster_configs",
    "alter_broker_configs", "list_topics", "live_topics", "get_topic", "live_topic", "create_topic", "delete_topic",
    "add_partitions", "delete_records", "get_topic_configs", "alter_topic_configs", "get_topic_consumers",
    "get_topic_producers", "get_topic_acls", "get_records", "get_records_of_topics", "get_record", "get_histogram",
    "export_records", "get_snippets", "check_filter", "produce_records", "copy_records", "list_groups", "live_groups",
    "get_group", "live_group", "get_group_history", "reset_group", "delete_group", "delete_group_offsets",
    "list_transactions", "live_transactions", "get_transaction", "abort_transaction", "list_acls", "add_acls", "remove_acls",
    "list_users", "set_user", "delete_user", "list_quotas", "alter_quota", "trace", "get_metadata", "get_waiting",
}  # fmt: skip
"""By the tests of this file."""
TESTED_ELSEWHERE = {
    "log_in", "log_out",  # test_access
    "list_pipelines", "get_pipeline", "live_pipelines", "live_pipeline", "get_pipeline_driver", "run_pipeline", "stop_pipeline",
    "reset_pipeline",  # test_pipelines
    "list_dead_letters", "get_dead_letters", "replay_dead_letters", "edit_dead_letter",
    "list_jobs", "get_job", "cancel_job", "live_job",  # test_dead_letters
    "list_subjects", "get_subject", "get_schema_version", "diff_schema_versions", "register_schema", "set_compatibility",
    "delete_schema",  # test_schemas
}  # fmt: skip


def first_event(console: RunningConsole, path: str) -> dict[str, Any]:
    with console.events(path) as events:
        name, document = next(events)
        assert name == "snapshot"
        return document


def test_overview_and_session(console: RunningConsole, filled: str) -> None:
    session = console.get("/api/session")
    assert (session["role"], session["login_required"], session["can"]) == ("admin", False, {"write": True, "admin": True})
    found = until(lambda: (document := console.get("/api/overview")) and document["complete"] and document["topics"] and document)
    assert found["brokers"] == {"up": 1, "expected": 1}
    assert found["health"] == "ok"
    assert first_event(console, "/api/live/overview")["head"]["cluster_id"] == found["cluster_id"]


def test_a_cluster_is_told_apart_from_one_that_is_away(console: RunningConsole) -> None:
    assert console.refused("GET", "/api/nothing", 404)["code"] == "NOT_FOUND"
    assert console.refused("GET", "/api/topics/no-such-topic", 404)["code"] == "UNKNOWN_TOPIC_OR_PARTITION"
    assert console.refused("GET", "/api/groups/no-such-group", 404)["code"] == "GROUP_ID_NOT_FOUND"
    assert console.refused("GET", "/api/topics?sort=colour", 400)["code"] == "BAD_REQUEST"
    assert "limit" in console.refused("GET", "/api/topics?limit=0", 400)["message"]


def test_brokers(console: RunningConsole) -> None:
    listed = console.get("/api/brokers")
    (broker,) = listed["brokers"]
    assert broker["is_controller"] or listed["controller_id"] >= 0
    found = console.get(f"/api/brokers/{broker['broker']}")
    assert found["log_dirs"]
    assert {"log.retention.hours", "num.io.threads"} <= {each["name"] for each in found["configs"]}
    assert all(each["value"] is None for each in found["configs"] if each["sensitive"])
    console.call("PATCH", "/api/brokers/default/configs", {"set": {"log.cleaner.backoff.ms": 12345}})
    changed = until(
        lambda: [each for each in console.get("/api/brokers/default")["configs"] if each["name"] == "log.cleaner.backoff.ms"],
        "the setting of all brokers",
    )
    assert (changed[0]["value"], changed[0]["source"]) == ("12345", "cluster")
    console.call("PATCH", "/api/brokers/default/configs", {"unset": ["log.cleaner.backoff.ms"]})
    assert console.refused("GET", "/api/brokers/4711", 404)["code"] == "NOT_FOUND"


def test_the_life_of_a_topic(console: RunningConsole, topic: str) -> None:
    name = f"{topic}-made"
    assert console.post("/api/topics", {"topic": name, "partitions": 2, "configs": {"retention.ms": 1000}}) == {"topic": name}
    assert console.refused("POST", "/api/topics", 409, {"topic": name})["code"] == "TOPIC_ALREADY_EXISTS"
    (row,) = console.get(f"/api/topics?search={name}")["rows"]
    assert (row["topic"], row["partitions"], row["records"]) == (name, 2, 0)
    assert console.post(f"/api/topics/{name}/partitions", {"count": 4}) == {"topic": name, "partitions": 4}
    assert console.refused("POST", f"/api/topics/{name}/partitions", 400, {"count": 3})["code"] == "BAD_REQUEST"
    assert until(lambda: len(console.get(f"/api/topics/{name}")["partitions"]) == 4, "four partitions")
    configs = {each["name"]: each for each in console.get(f"/api/topics/{name}/configs")["configs"]}
    assert (configs["retention.ms"]["value"], configs["retention.ms"]["source"]) == ("1000", "topic")
    assert configs["retention.ms"]["default"] == "604800000"
    assert configs["retention.ms"]["documentation"]
    console.call("PATCH", f"/api/topics/{name}/configs", {"set": {"max.message.bytes": "2000"}, "unset": ["retention.ms"]})

    def settings() -> dict[str, str]:
        return {each["name"]: each["value"] for each in console.get(f"/api/topics/{name}/configs")["configs"]}

    until(lambda: (settings()["max.message.bytes"], settings()["retention.ms"]) == ("2000", "604800000"), settings)
    assert "no-such" in console.refused("PATCH", f"/api/topics/{name}/configs", 400, {"set": {"no-such": "1"}})["message"]
    assert console.call("DELETE", f"/api/topics/{name}") == {"topic": name}
    until(lambda: console.request("GET", f"/api/topics/{name}").status_code == 404, "the topic is gone")


def test_the_list_of_topics_by_window(console: RunningConsole, ottla: Ottla, topic: str) -> None:
    names = [f"{topic}-{letter}" for letter in "abc"]
    for number, name in enumerate(names, 1):
        console.post("/api/topics", {"topic": name, "partitions": number})
    try:
        assert [row["topic"] for row in console.get(f"/api/topics?search={topic}-*&limit=2")["rows"]] == names[:2]
        assert [row["topic"] for row in console.get(f"/api/topics?search={topic}-*&offset=2")["rows"]] == names[2:]
        found = console.get(f"/api/topics?search={topic}-&sort=-partitions")
        assert ([row["partitions"] for row in found["rows"]], found["matched"]) == ([3, 2, 1], 3)
        assert [row["topic"] for row in console.get(f"/api/topics?names={names[1]}")["rows"]] == [names[1]]
        assert first_event(console, f"/api/live/topics?search={topic}-")["order"] == names
    finally:
        ottla.run("topic", "delete", *names)


def test_a_topic_and_who_reads_and_writes_it(console: RunningConsole, filled: str, group: str) -> None:
    found = console.get(f"/api/topics/{filled}?replicas=1")
    assert [(each["log_start"], each["high_watermark"], each["last_stable"]) for each in found["partitions"]] == [(0, 3, 3)] * 3
    assert [state["log_end"] for each in found["partitions"] for state in each["replica_states"]] == [3, 3, 3]
    assert set(first_event(console, f"/api/live/topics/{filled}")["rows"]) == {"0", "1", "2"}
    reader = until(lambda: console.get(f"/api/topics/{filled}/consumers")["groups"], "the group is seen")[0]
    assert (reader["group"], reader["lag"], reader["lead"]) == (group, 6, 1)
    # The console's own producer is idempotent.
    assert {each["partition"] for each in console.get(f"/api/topics/{filled}/producers")["producers"]} == {0, 1, 2}


def test_live_documents_tell_only_what_changed(console: RunningConsole, filled: str) -> None:
    with console.events(f"/api/live/topics/{filled}") as events:
        assert next(events)[0] == "snapshot"
        console.post(f"/api/topics/{filled}/records", {"value": "x", "partition": 1})
        for name, document in events:
            assert name == "delta"
            if document["rows"].get("1", {}).get("log_end") == 4:
                assert "replicas" not in document["rows"]["1"]
                assert "0" not in document["rows"] or "log_end" not in document["rows"]["0"]
                break


def test_records_by_position_and_filter(console: RunningConsole, filled: str) -> None:
    path = f"/api/topics/{filled}/records"
    assert values(console.records(path)[0]) == list(range(8, -1, -1))
    assert values(console.records(f"{path}?order=oldest")[0]) == list(range(9))
    assert values(console.records(f"{path}?partitions=1&order=oldest")[0]) == [1, 4, 7]
    assert values(console.records(f"{path}?from=@1700000003000&until=@1700000006000&order=oldest")[0]) == [3, 4, 5]
    assert values(console.records(f"{path}?from=-1")[0]) == [8, 7, 6]
    assert values(console.records(f"{path}?where={quote('value.n % 4 == 1')}")[0]) == [5, 1]
    assert values(console.records(f"{path}?search=ada%207&ignore_case=1")[0]) == [7]
    assert values(console.records(f"{path}?key=k5&all_partitions=1")[0]) == [5]
    found, end = console.records(f"{path}?search=nowhere")
    assert (found, end["reason"], end["complete"], end["records"]) == ([], "done", True, 9)
    assert values(console.records(f"/api/records?topics={filled}&limit=1")[0]) == [8]
    for wrong in ("from=never", "where=foo", "limit=0", "continue=abc", "partitions=x", "value_format=tape"):
        assert console.refused("GET", f"{path}?{wrong}", 400)["code"] == "BAD_REQUEST", wrong
    events = console.all_events(f"{path}?partitions=9")
    assert (events[-1][0], events[-1][1]["reason"]) == ("end", "error")


def test_a_group_is_a_position(console: RunningConsole, filled: str, group: str) -> None:
    assert values(console.records(f"/api/topics/{filled}/records?from=group:{group}&order=oldest")[0]) == [3, 4, 5, 6, 7, 8]


def test_one_record(console: RunningConsole, filled: str) -> None:
    record = console.get(f"/api/topics/{filled}/records/1/2")
    assert record["key"] == {"format": "text", "text": "k7", "size": 2, "truncated": False, "base64": "azc="}
    assert json.loads(record["value"]["text"]) == {"n": 7, "name": "Ada 7"}
    assert console.refused("GET", f"/api/topics/{filled}/records/1/99", 404)["code"] == "NOT_FOUND"
    assert console.refused("GET", f"/api/topics/{filled}/records/8/0", 404)["code"] == "_UNKNOWN_PARTITION"


def test_the_histogram_counts_all_records(console: RunningConsole, filled: str) -> None:
    found = console.get(f"/api/topics/{filled}/histogram?buckets=3")
    assert [each["records"] for each in found["buckets"]] == [3, 3, 3]
    assert (found["total"], found["exact"], found["from_ms"], found["until_ms"]) == (
        9,
        True,
        1_700_000_000_000,
        1_700_000_008_001,
    )
    assert console.get(f"/api/topics/{filled}/histogram?from=@1700000004000&partitions=0")["total"] == 1


def test_an_export_holds_all_that_matches(console: RunningConsole, filled: str) -> None:
    path = f"/api/topics/{filled}/export?order=oldest&where={quote('value.n > 2')}"
    lines = console.request("GET", f"{path}&format=jsonl")
    assert [json.loads(json.loads(line)["value"])["n"] for line in lines.text.splitlines()] == [3, 4, 5, 6, 7, 8]
    assert lines.headers["content-disposition"] == f'attachment; filename="{filled}.jsonl"'
    rows = list(csv.DictReader(io.StringIO(console.request("GET", f"{path}&format=csv").text)))
    assert [row["key"] for row in rows] == ["k3", "k4", "k5", "k6", "k7", "k8"]
    import pyarrow.parquet as pq

    table = pq.read_table(io.BytesIO(console.request("GET", f"{path}&format=parquet").content))
    assert table.column("key").to_pylist() == [b"k3", b"k4", b"k5", b"k6", b"k7", b"k8"]


def test_snippets_and_filters(console: RunningConsole, filled: str, ottla: Ottla) -> None:
    found = console.get(f"/api/topics/{filled}/snippets?search=Ada&from=@1700000006000")
    assert found["ottla"].startswith(f"ottla find Ada -t {filled} --from @1700000006000")
    compile(found["python"], "snippet", "exec")
    compile(found["pyspark"], "snippet", "exec")
    assert console.post("/api/filters/check", {"where": "value.n > 1"}) == {"ok": True}
    wrong = console.post("/api/filters/check", {"where": "value.n >"})
    assert not wrong["ok"]
    assert wrong["message"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("asked", "kcat_too"),
    [
        ("", True),
        ("from=@1700000003000&until=@1700000007000", True),
        ("from=-2", True),
        ("partitions=1&from=1&limit=1&order=oldest", True),
        ("key=k5&all_partitions=1", False),
        ("search=ada&ignore_case=1&partitions=2", True),
        ("search=Ada%20%5B4-6%5D&regex=1", False),
    ],
)
def test_what_is_copied_reads_the_same(console: RunningConsole, filled: str, ottla: Ottla, asked: str, kcat_too: bool) -> None:
    expected = {(each["partition"], each["offset"]) for each in console.records(f"/api/topics/{filled}/records?{asked}")[0]}
    assert expected
    found = console.get(f"/api/topics/{filled}/snippets?{asked}")

    def places(command: list[str]) -> set[tuple[int, int]]:
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, env=ottla.environment, check=True)
        words = [line.replace(":", " ", 1).split() for line in done.stdout.splitlines()]
        return {(int(each[0]), int(each[1])) for each in words}

    assert places([sys.executable, "-c", found["python"]]) == expected
    if kcat_too:
        assert places(["bash", "-c", re.sub("(?m)^kcat", kcat(), found["kcat"])]) == expected
    lines = ottla.ok(*shlex.split(found["ottla"])[1:], "--json").splitlines()
    records = [json.loads(line) for line in lines]
    assert {(each["partition"], each["offset"]) for each in records} == expected


def test_producing_and_copying(console: RunningConsole, filled: str, topic: str) -> None:
    written = console.post(
        f"/api/topics/{filled}/records",
        {"key": "k", "value_base64": "AP8=", "headers": {"trace": "7"}, "partition": 2, "timestamp": 1_700_000_100_000},
    )["records"]
    assert written == [{"partition": 2, "offset": 3, "timestamp": 1_700_000_100_000}]
    record = console.get(f"/api/topics/{filled}/records/2/3")
    assert (record["value"]["format"], record["value"]["text"]) == ("hex", "00 ff")
    assert record["headers"][0]["name"] == "trace"
    copied = console.post(
        f"/api/topics/{filled}/copy", {"to": filled, "partition": 0, "records": [{"partition": 2, "offset": 3}]}
    )["records"]
    same = console.get(f"/api/topics/{filled}/records/0/{copied[0]['offset']}")
    assert (same["key"], same["value"], same["headers"], same["timestamp"]) == (
        record["key"], record["value"], record["headers"], record["timestamp"]
    )  # fmt: skip
    assert console.refused("POST", f"/api/topics/{filled}/records", 400, {"colour": 1})["code"] == "BAD_REQUEST"
    assert console.refused("POST", "/api/topics/no-such-topic/records", 404, {"value": "x"})
    assert console.refused("POST", f"/api/topics/{filled}/records", 404, {"value": "x", "partition": 7})


def test_delete_records_shows_first(console: RunningConsole, filled: str) -> None:
    path = f"/api/topics/{filled}/delete-records"
    preview = console.post(path, {"before": "2"})
    assert [(each["before"], each["deleted"]) for each in preview["partitions"]] == [(2, 2)] * 3
    assert len(console.records(f"/api/topics/{filled}/records")[0]) == 9
    assert console.post(path, {"before": "2", "execute": True})["executed"]
    assert until(lambda: len(console.records(f"/api/topics/{filled}/records")[0]) == 3, "six are gone")


def test_groups(console: RunningConsole, filled: str, group: str) -> None:
    row = until(lambda: console.get(f"/api/groups?search={group}")["rows"], "the group is listed")[0]
    assert (row["group"], row["state"], row["lag"], row["lead"], row["topics"]) == (group, "Empty", 6, 1, [filled])
    found = console.get(f"/api/groups/{group}")
    assert [(each["committed"], each["lag"], each["lead"]) for each in found["partitions"]] == [(1, 2, 1)] * 3
    assert console.get(f"/api/groups/{group}/history")["points"][-1]["lag"] == 6
    assert first_event(console, f"/api/live/groups?search={group}")["order"] == [group]
    assert first_event(console, f"/api/live/groups/{group}")["rows"][f"{filled}-0"]["lag"] == 2
    path = f"/api/groups/{group}/offsets"
    preview = console.post(path, {"to": "latest"})
    assert (preview["executed"], [each["new_offset"] for each in preview["partitions"]]) == (False, [3, 3, 3])
    assert console.get(f"/api/groups/{group}")["lag"] == 6
    assert console.post(path, {"topics": [f"{filled}:0"], "to": "offset:0", "execute": True})["executed"]
    assert console.get(f"/api/groups/{group}")["lag"] == 7
    for to, offsets in (
        ("earliest", [0, 0, 0]),
        ("shift:1", [1, 2, 2]),
        ("time:@1700000003000", [1, 1, 1]),
        ("current", [0, 1, 1]),
    ):
        assert [each["new_offset"] for each in console.post(path, {"to": to})["partitions"]] == offsets, to
    assert console.refused("POST", path, 400, {"to": "somewhere"})["code"] == "BAD_REQUEST"
    console.post(f"/api/groups/{group}/delete-offsets", {"topics": [f"{filled}:0"]})
    assert len(until(lambda: console.get(f"/api/groups/{group}")["partitions"], "offsets")) >= 2
    console.call("DELETE", f"/api/groups/{group}")
    assert console.refused("GET", f"/api/groups/{group}", 404)


def test_a_group_with_members_is_not_reset(console: RunningConsole, subject: Subject, filled: str) -> None:
    name = f"busy-{filled}"
    consumer = Consumer({"bootstrap.servers": subject.bootstrap_servers, "group.id": name, "client.id": "reader"})
    consumer.subscribe([filled])
    try:
        until(lambda: consumer.poll(0.1) is not None or consumer.assignment(), "the group is stable")
        error = console.refused(
            "POST", f"/api/groups/{name}/offsets", 409, {"topics": [filled], "to": "earliest", "execute": True}
        )
        assert error["code"] == "NON_EMPTY_GROUP"
        members = until(lambda: (consumer.poll(0.1), console.get(f"/api/groups/{name}"))[1]["members"], "its member")
        assert members[0]["client"] == "reader"
    finally:
        consumer.close()


def test_transactions(console: RunningConsole, subject: Subject, filled: str) -> None:
    producer = Producer({"bootstrap.servers": subject.bootstrap_servers, "transactional.id": f"tx-{filled}"})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(filled, b"open", partition=0)
    producer.flush(30)
    path = f"/api/transactions?search=tx-{filled}"
    row = until(lambda: [row for row in console.get(path)["rows"] if row["state"] == "Ongoing"], "it is listed")[0]
    assert row["producer_id"] >= 0
    assert first_event(console, path.replace("/api/", "/api/live/"))["rows"]
    found = console.get(f"/api/transactions/tx-{filled}")
    assert (found["state"], found["partitions"]) == ("Ongoing", [{"topic": filled, "partition": 0}])
    # One that its coordinator knows is not for this call.
    body = {"topic": filled, "partition": 0, "start_offset": 3}
    assert console.refused("POST", "/api/transactions/abort", 404, body)["code"] == "NOT_FOUND"
    assert values_or_text(console.records(f"/api/topics/{filled}/records?partitions=0")[0])[0] != "open"
    assert console.records(f"/api/topics/{filled}/records?partitions=0&isolation=read_uncommitted&limit=1")[0][0]["offset"] == 3
    producer.commit_transaction(30)
    assert console.refused("GET", "/api/transactions/nobody", 404)


def values_or_text(records: list[dict[str, Any]]) -> list[Any]:
    return [record["value"]["text"] for record in records]


def test_acls(console: RunningConsole, topic: str) -> None:
    acl = {
        "type": "topic", "name": topic, "pattern": "literal", "principal": "User:ada", "host": "*",
        "operation": "read", "permission": "allow",
    }  # fmt: skip
    assert console.post("/api/acls", {"acls": [acl]})["acls"] == [acl]
    assert until(lambda: console.get(f"/api/topics/{topic}/acls")["acls"], "it holds") == [acl]
    assert acl in console.get("/api/acls")["acls"]
    assert console.call("DELETE", "/api/acls", {"acls": [acl]})["acls"] == [acl]
    until(lambda: not console.get(f"/api/topics/{topic}/acls")["acls"], "it is gone")
    assert console.refused("POST", "/api/acls", 400, {"acls": [{**acl, "operation": "fly"}]})["code"] == "BAD_REQUEST"


def test_users_and_quotas(console: RunningConsole, topic: str) -> None:
    user = f"user-{topic}"
    console.post("/api/users", {"user": user, "password": "secret-word", "mechanism": "SCRAM-SHA-256"})

    def mechanisms() -> list[str]:
        users = {each["user"]: each["mechanisms"] for each in console.get("/api/users")["users"]}
        return [each["mechanism"] for each in users.get(user, [])]

    assert until(mechanisms, "the user") == ["SCRAM-SHA-256"]
    console.call("DELETE", f"/api/users/{user}")
    until(lambda: not mechanisms(), "the user is gone")
    entity = {"user": user, "client_id": None}

    def limits() -> dict[str, float]:
        found = [each["limits"] for each in console.get("/api/quotas")["quotas"] if each["entity"] == entity]
        return found[0] if found else {}

    console.post("/api/quotas", {"entity": entity, "set": {"producer_byte_rate": 1024}})
    until(lambda: limits() == {"producer_byte_rate": 1024.0}, limits)
    console.post("/api/quotas", {"entity": entity, "unset": ["producer_byte_rate"]})
    until(lambda: not limits(), limits)
    assert console.refused("POST", "/api/quotas", 400, {"entity": entity, "set": {"speed": 1}})


def test_where_is_my_record(console: RunningConsole, topic: str) -> None:
    """Over two topics, in order of time, with the time between them."""
    other = f"{topic}-out"
    console.post("/api/topics", {"topic": other, "partitions": 2})
    console.post(f"/api/topics/{topic}/records", {"key": "k", "value": "in", "headers": {"trace": "7"}, "timestamp": 1000})
    console.post(f"/api/topics/{other}/records", {"key": "k", "value": "out", "headers": {"trace": "7"}, "timestamp": 1250})
    for looked in ("key=k&all_partitions=1", "header=trace:7"):
        events = console.all_events(f"/api/trace?topics={other},{topic},gone&{looked}")
        hops = [(document["topic"], document["after_ms"]) for name, document in events if name == "hop"]
        assert hops == [(topic, None), (other, 250)]
        assert "topic gone does not exist" in events[0][1]["notes"]
    console.call("DELETE", f"/api/topics/{other}")


def test_changes_are_written_down(console: RunningConsole, topic: str) -> None:
    console.post(f"/api/topics/{topic}/records", {"key": "k", "value": "hidden-value"})
    console.request("POST", "/api/users", {"user": "", "password": "hidden-password"})
    entries = console.get("/api/audit?limit=1000")["entries"]
    produced = next(each for each in entries if each["action"] == "produce_records" and each["subject"] == topic)
    assert (produced["result"], produced["user"]) == ("ok", None)
    assert entries[0]["result"] == "failed"
    kept = until(lambda: console.records("/api/topics/__ottla_audit/records?limit=10000")[0], "the topic")
    text = json.dumps([entries, kept])
    assert topic in json.dumps(kept)
    assert "hidden-value" not in text
    assert "hidden-password" not in text


def test_what_the_console_measures_of_itself(console: RunningConsole, topic: str) -> None:
    def figures() -> dict[str, float]:
        answer = console.request("GET", "/metrics")
        assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
        lines = [line.rpartition(" ") for line in answer.text.splitlines() if not line.startswith("#")]
        return {name: float(value) for name, _, value in lines}

    console.post(f"/api/topics/{topic}/records", {"records": [{"value": "x" * 100, "partition": 0}] * 5})
    before = figures()
    console.records(f"/api/topics/{topic}/records?search=y")
    with console.events("/api/live/topics") as events:
        next(events)
        during = figures()
        assert during["ottla_console_event_streams"] == before["ottla_console_event_streams"] + 1
    assert during["ottla_console_scanned_records_total"] - before["ottla_console_scanned_records_total"] == 5
    assert during["ottla_console_scanned_bytes_total"] - before["ottla_console_scanned_bytes_total"] > 500
    assert during["ottla_console_searches_total"] == before["ottla_console_searches_total"] + 1
    name = 'ottla_console_requests_total{method="GET",status="200"}'
    assert during[name] > before.get(name, 0)
    assert during["ottla_console_cluster_up"] == 1
    assert during["process_resident_memory_bytes"] > 10 << 20
    until(lambda: figures()["ottla_console_event_streams"] == before["ottla_console_event_streams"], "the stream is counted out")
    assert topic not in console.request("GET", "/metrics").text


def test_what_the_metadata_holds_of_a_topic(console: RunningConsole, topic: str) -> None:
    console.call("PATCH", f"/api/topics/{topic}/configs", {"set": {"retention.ms": "12345"}})
    found = console.get(f"/api/topics/{topic}/metadata")
    text = json.dumps(found)
    about = console.get(f"/api/topics/{topic}")
    assert about["topic_id"] in text
    assert "12345" in text
    paths = [entry["path"] for entry in found["entries"]]
    if found["kind"] == "kraft":
        assert paths.count("PartitionRecord") == 3
        quorum = json.loads(found["entries"][0]["value"])
        assert quorum["leader"] in map(int, quorum["voters"])
        assert quorum["voters"][str(quorum["leader"])] >= quorum["highWatermark"] > 0
    else:
        assert f"/brokers/topics/{topic}/partitions/2/state" in paths
    assert console.refused("GET", "/api/topics/no-such-topic/metadata", 404)["code"] == "UNKNOWN_TOPIC_OR_PARTITION"
    waiting = console.get(f"/api/brokers/{about['partitions'][0]['leader']}/waiting")
    assert (waiting["told"], waiting["requests"]) == (False, [])


def test_who_waits_at_a_broker() -> None:
    """A consumer without new records waits in the purgatory."""
    with Broker({"metrics.listener": f"127.0.0.1:{free_port()}"}) as broker:
        broker.create_topic("quiet", 1)
        named = {"client.id": "patient", "fetch.wait.max.ms": 5000, "log_level": 0}
        consumer = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": "g", **named})
        consumer.assign([TopicPartition("quiet", 0, 0)])
        with running_console(broker.bootstrap_servers) as console:
            (number,) = [each["broker"] for each in console.get("/api/brokers")["brokers"]]

            def waits() -> bool:
                consumer.poll(0.05)
                found = console.get(f"/api/brokers/{number}/waiting?topic=quiet&partition=0")
                return any((each["request"], each["client"]) == ("fetch", "patient") for each in found["requests"])

            try:
                until(waits, "the consumer waits")
                assert not console.get(f"/api/brokers/{number}/waiting?topic=quiet&partition=1")["requests"]
            finally:
                consumer.close()


MANY_DIGITS = "9" * 5000
DEEP = "[" * 480 + "]" * 480
HALF = r'"\ud800"'


@pytest.mark.parametrize(
    ("path", "status"),
    [
        (f"/api/topics?limit={MANY_DIGITS}", 400),
        (f"/api/topics/TOPIC/records?partitions={MANY_DIGITS}", 400),
        (f"/api/topics/TOPIC/records?from={MANY_DIGITS}", 400),
        (f"/api/topics/TOPIC/records?from=-{MANY_DIGITS}", 400),
        (f"/api/topics/TOPIC/histogram?from=@{MANY_DIGITS}", 400),
        ("/api/brokers/424242/waiting", 404),
    ],
)
def test_a_wrong_question_is_refused(console: RunningConsole, topic: str, path: str, status: int) -> None:
    console.refused("GET", path.replace("TOPIC", topic), status)


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("POST", "/api/topics", '{"topic": HALF}', 400),
        ("PATCH", "/api/topics/TOPIC/configs", '{"set": {"retention.ms": HALF}}', 400),
        ("PATCH", "/api/topics/TOPIC/configs", '{"set": DEEP}', 400),
        ("POST", "/api/users", '{"user": HALF, "password": "x"}', 400),
        ("POST", "/api/quotas", '{"entity": DEEP}', 400),
        ("POST", "/api/acls", '{"acls": DEEP}', 400),
        ("POST", "/api/topics", '{"topic": "x", "replication_factor": 20000}', 400),
        ("POST", "/api/topics", '{"topic": "x", "partitions": NaN}', 400),
        ("POST", "/api/topics/TOPIC/records", '{"value": {"n": 1e400}}', 400),
        ("POST", "/api/topics/TOPIC/delete-records", f'{{"before": "{MANY_DIGITS}"}}', 400),
        ("POST", "/api/groups/nobody/offsets", f'{{"topics": ["TOPIC"], "to": "offset:{MANY_DIGITS}"}}', 400),
        ("POST", "/api/groups/nobody/offsets", '{"topics": ["TOPIC"], "to": "shift:-+5"}', 400),
        ("POST", "/api/groups/nobody/offsets", '{"to": "earliest"}', 404),
        ("PATCH", "/api/brokers/424242/configs", '{"set": {"log.retention.ms": "1"}}', 404),
        ("DELETE", "/api/users/nobody", "{}", 404),
    ],
)
def test_a_wrong_change_is_refused(console: RunningConsole, topic: str, method: str, path: str, body: str, status: int) -> None:
    content = body.replace("TOPIC", topic).replace("HALF", HALF).replace("DEEP", DEEP)
    sent = {"content-type": "application/json"}
    answer = httpx.request(method, console.url + path.replace("TOPIC", topic), content=content, headers=sent, timeout=60)
    assert answer.status_code == status, answer.text
    assert answer.json()["error"]["message"]
    # Refused changes are in the audit too, and it can be read.
    assert console.get("/api/audit")["entries"] is not None
