"""`ottla produce` and `ottla consume` (F24, F25, F31, F32)."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from tests.kit.ottla_command import TIMEOUT_S, Ottla


def consumed(ottla: Ottla, *words: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in ottla.ok("consume", *words, "--json").splitlines()]


def test_lines_in_lines_out(ottla: Ottla, topic: str) -> None:
    done = ottla.spawn("produce", topic, "-p", "0", stdin=b"one\r\ntwo\n\nlast \xff")
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", f"4 records to {topic}\n".encode())
    assert ottla.spawn("consume", topic).stdout == b"one\ntwo\n\nlast \xff\n"


def test_keys_go_where_the_java_client_puts_them(ottla: Ottla, topic: str) -> None:
    """F24. The first two are vectors of Kafka's own test of murmur2: they hold our arithmetic to its."""
    assert murmur2(b"21") == -973932308 & 0xFFFFFFFF
    assert murmur2(b"foobar") == -790332482 & 0xFFFFFFFF
    keys = ["21", "foobar", "alpha", "beta", "gamma", "delta"]
    ottla.ok("produce", topic, "-K", ":", stdin="".join(f"{key}:v\n" for key in keys))
    found = {record["key"]: record["partition"] for record in consumed(ottla, topic)}
    assert found == {key: (murmur2(key.encode()) & 0x7FFFFFFF) % 3 for key in keys}


def murmur2(data: bytes) -> int:
    """The hash of Kafka's DefaultPartitioner."""
    m, mask = 0x5BD1E995, 0xFFFFFFFF
    h = (0x9747B28C ^ len(data)) & mask
    whole = len(data) // 4 * 4
    for at in range(0, whole, 4):
        k = int.from_bytes(data[at : at + 4], "little") * m & mask
        k = (k ^ (k >> 24)) * m & mask
        h = (h * m & mask) ^ k
    if len(data) > whole:
        h = (h ^ int.from_bytes(data[whole:], "little")) * m & mask
    h = (h ^ (h >> 13)) * m & mask
    return h ^ (h >> 15)


def test_everything_a_record_has(ottla: Ottla, topic: str) -> None:
    line = {"key": "k", "value": {"a": 1}, "headers": {"own": "1"}, "partition": 2, "timestamp": 1_700_000_000_000}
    out = ottla.ok("produce", topic, "--format", "json", "-H", "all=x", "-z", "zstd", "--json", stdin=json.dumps(line))
    assert json.loads(out) == {
        "topic": topic,
        "records": 1,
        "failed": 0,
        "value_bytes": 7,
        "partitions": [{"partition": 2, "records": 1, "first_offset": 0, "last_offset": 0}],
    }
    assert consumed(ottla, topic) == [
        {
            "topic": topic,
            "partition": 2,
            "offset": 0,
            "timestamp": 1_700_000_000_000,
            "timestamp_type": "CreateTime",
            "key": "k",
            "value": '{"a":1}',
            "headers": [{"name": "all", "value": "x"}, {"name": "own", "value": "1"}],
        }
    ]


def test_json_out_is_json_in(ottla: Ottla, topic: str) -> None:
    ottla.ok("produce", topic, "--format", "hex", "-K", ":", "-p", "1", stdin="00ff:fe\n61:\n")
    first = ottla.ok("consume", topic, "--json")
    ottla.ok("produce", topic, "--format", "json", stdin=first)
    records = consumed(ottla, topic)
    assert [(r.get("key"), r.get("key_base64"), r.get("value"), r.get("value_base64")) for r in records] == [
        (None, "AP8=", None, "/g=="),
        ("a", None, "", None),
    ] * 2


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_codecs_and_acks(ottla: Ottla, topic: str, codec: str, acks: str) -> None:
    """F21, F27."""
    ottla.ok("produce", topic, "-z", codec, "--acks", acks, "-p", "0", stdin="".join(f"{i}\n" for i in range(50)))
    if acks != "0":
        assert ottla.ok("consume", topic).split() == [str(i) for i in range(50)]


def test_null_values_and_templates(ottla: Ottla, topic: str) -> None:
    ottla.ok("produce", topic, "-K", "=", "--null", "-", "-p", "0", stdin="a=1\nb=-\n")
    assert ottla.ok("consume", topic, "--keys", "-K", "=") == "a=1\nb=null\n"
    assert ottla.ok("consume", topic, "-t", "{partition}/{offset} {key}") == "0/0 a\n0/1 b\n"
    assert ottla.ok("consume", topic, "--format", "base64", "--null", "") == "MQ==\n\n"


@pytest.mark.parametrize("template", ["{nix}", "{", "{}", "{value.x}", "{partition:q}"])
def test_a_template_that_cannot_work_is_told_before_any_record(ottla: Ottla, topic: str, template: str) -> None:
    error = ottla.fails("consume", topic, "-t", template, code=2)
    assert f"the template {template!r} is invalid" in error
    assert "fields are topic, partition" in error


def test_values_of_the_command_line_and_verbose(ottla: Ottla, topic: str) -> None:
    assert ottla.ok("produce", topic, "a", "b", "-p", "1", "-v") == f"{topic}-1 offset 0\n{topic}-1 offset 1\n"
    assert [json.loads(line)["offset"] for line in ottla.ok("produce", topic, "c", "-p", "1", "-v", "--json").splitlines()] == [2]


def test_without_acknowledgement_no_offset_is_known(ottla: Ottla, topic: str) -> None:
    assert ottla.ok("produce", topic, "a", "-p", "1", "-v", "--acks", "0") == f"{topic}-1 offset unknown\n"
    (partition,) = json.loads(ottla.ok("produce", topic, "a", "-p", "1", "--acks", "0", "--json"))["partitions"]
    assert (partition["first_offset"], partition["last_offset"]) == (None, None)


def test_from_a_file(ottla: Ottla, topic: str, tmp_path: Path) -> None:
    (tmp_path / "in").write_text("x\ny\n")
    ottla.ok("produce", topic, "-f", str(tmp_path / "in"), "-p", "0")
    assert ottla.ok("consume", topic) == "x\ny\n"
    assert "cannot read" in ottla.fails("produce", topic, "-f", str(tmp_path / "nope"))


def test_the_last_records_of_a_topic_written_by_transactions(ottla: Ottla, topic: str) -> None:
    """The end of a transaction and an aborted record have offsets, and are no records."""
    producer = Producer({"bootstrap.servers": ottla.bootstrap_servers, "transactional.id": topic})
    producer.init_transactions()
    for values in (["a", "b", "c"], ["d"], ["aborted"] * 2_000):
        producer.begin_transaction()
        for value in values:
            producer.produce(topic, value, partition=0)
        if values[0] == "aborted":
            assert producer.flush(60) == 0
            producer.abort_transaction()
        else:
            producer.commit_transaction()
    assert ottla.ok("consume", topic, "--from", "-1").split() == ["d"]
    assert ottla.ok("consume", topic, "--from", "-3").split() == ["b", "c", "d"]
    assert ottla.ok("consume", topic, "--from", "-3", "--until", "-1").split() == ["b", "c"]
    assert ottla.ok("consume", topic, "--from", "-9").split() == ["a", "b", "c", "d"]
    assert ottla.ok("consume", topic, "--from", "-1", "--isolation", "read_uncommitted").split() == ["aborted"]
    assert ottla.ok("delete-records", topic, "--before", "-2", "--yes")
    assert ottla.ok("consume", topic).split() == ["c", "d"]


def test_places(ottla: Ottla, topic: str) -> None:
    """From and until: offsets, the last n, times (F32)."""
    lines = [json.dumps({"value": str(i), "partition": 0, "timestamp": 1_700_000_000_000 + i * 1000}) for i in range(10)]
    ottla.ok("produce", topic, "--format", "json", stdin="\n".join(lines))

    def values(*words: str) -> list[int]:
        return [int(line) for line in ottla.ok("consume", topic, *words).split()]

    assert values("--from", "7", "-p", "0") == [7, 8, 9]
    assert values("--from", "-2") == [8, 9]
    assert values("--from", "end") == []
    assert values("--from", "10", "-p", "0") == []
    assert values("--from", "2", "-p", "0", "-n", "3") == [2, 3, 4]
    assert values("--from", "2", "--until", "4", "-p", "0") == [2, 3]
    assert values("--from", "@1700000004500") == [5, 6, 7, 8, 9]
    assert values("--from", "2023-11-14T22:13:26Z") == [6, 7, 8, 9]
    assert values("--from", "@1700000003000", "--until", "@1700000005000") == [3, 4]
    assert values("--from", "10m") == []
    assert "offset 11 is outside" in ottla.fails("consume", topic, "--from", "11", "-p", "0")
    assert "not a position" in ottla.fails("consume", topic, "--from", "soon", code=2)


def test_an_empty_topic_ends_at_once(ottla: Ottla, topic: str) -> None:
    assert ottla.ok("consume", topic) == ""


def test_several_topics(ottla: Ottla, topic: str) -> None:
    other = topic + "-b"
    ottla.ok("produce", other, "there", "--create")
    ottla.ok("produce", topic, "here")
    assert sorted(ottla.ok("consume", topic, other).split()) == ["here", "there"]
    ottla.ok("topic", "delete", other)


def test_follow_waits_for_more_and_ctrl_c_ends_it(ottla: Ottla, topic: str) -> None:
    ottla.ok("produce", topic, "early", "-p", "0")
    with subprocess.Popen(
        ottla.command("consume", topic, "--follow"), stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=ottla.environment
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        try:
            assert process.stdout.readline() == b"early\n"
            ottla.ok("produce", topic, "later", "-p", "1")
            assert process.stdout.readline() == b"later\n"
            process.send_signal(signal.SIGINT)
            assert process.wait(TIMEOUT_S) == 130
            assert process.stderr.read() == b""
        finally:
            process.kill()


def test_follow_ends_after_max_messages(ottla: Ottla, topic: str) -> None:
    ottla.ok("produce", topic, "a", "b", "-p", "0")
    assert ottla.ok("consume", topic, "-f", "-n", "2") == "a\nb\n"


def test_follow_until_an_offset_to_come(ottla: Ottla, topic: str) -> None:
    ottla.ok("produce", topic, "-p", "0", "one")
    with subprocess.Popen(
        ottla.command("consume", topic, "-p", "0", "-f", "--until", "2"), stdout=subprocess.PIPE, env=ottla.environment
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"one\n"
        ottla.ok("produce", topic, "-p", "0", "two", "three")
        assert process.stdout.read() == b"two\n"
        assert process.wait(TIMEOUT_S) == 0
    assert "at a future time" in ottla.fails("consume", topic, "-f", "--until", "2999-01-01", code=2)


def test_the_reader_goes_away(ottla: Ottla, topic: str) -> None:
    """`ottla consume | head` ends without a word."""
    ottla.ok("produce", topic, "-p", "0", stdin=("x" * 500 + "\n") * 2000)
    with subprocess.Popen(
        ottla.command("consume", topic), stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=ottla.environment
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(TIMEOUT_S) == 141


@pytest.mark.parametrize("words", [["consume"], ["topic", "describe", "--json"]])
def test_no_room_for_the_output(ottla: Ottla, topic: str, words: list[str]) -> None:
    ottla.ok("produce", topic, "-p", "0", stdin=("x" * 500 + "\n") * 100)
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            ottla.command(*words, topic),
            stdout=full,
            stderr=subprocess.PIPE,
            env=ottla.environment,
            timeout=TIMEOUT_S,
            check=False,
        )
    assert done.returncode == 1
    assert b"cannot write the output: No space left on device" in done.stderr
    assert b"Traceback" not in done.stderr
    assert b"Exception" not in done.stderr


def test_acks_that_do_not_exist(ottla: Ottla, topic: str) -> None:
    for command in (["produce"], ["perf", "produce"], ["perf", "latency"]):
        assert "is not 0, 1 or all" in ottla.fails(*command, topic, "--acks", "2", code=2)


def test_ctrl_c_while_producing_sends_what_was_read(ottla: Ottla, topic: str) -> None:
    read_end, write_end = os.pipe()
    with subprocess.Popen(
        ottla.command("produce", topic, "-p", "0", "-v"),
        stdin=read_end,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**ottla.environment, "PYTHONUNBUFFERED": "1"},
    ) as process:
        os.close(read_end)
        assert process.stdout is not None
        assert process.stderr is not None
        os.write(write_end, b"one\n")
        # The client tells of a delivery when it is asked, which happens with the next line.
        with subprocess.Popen(
            ottla.command("consume", topic, "-f", "-n", "1"), stdout=subprocess.PIPE, env=ottla.environment
        ) as reader:
            assert reader.stdout is not None
            assert reader.stdout.readline() == b"one\n"
        process.send_signal(signal.SIGINT)
        assert process.wait(TIMEOUT_S) == 130
        os.close(write_end)
        assert process.stdout.read() == f"{topic}-0 offset 0\n".encode()
        assert process.stderr.read() == b""


@pytest.mark.parametrize(
    ("words", "stdin", "code", "says"),
    [
        (["produce", "{topic}x"], "", 1, "topic {topic}x does not exist"),
        (["consume", "{topic}x"], "", 1, "did you mean {topic}?"),
        (["produce", "{topic}", "-p", "7"], "x\n", 1, "no partition 7"),
        (["consume", "{topic}", "-p", "7"], "", 1, "no partition 7"),
        (["produce", "{topic}", "-K", ":"], "a:b\nbroken\n", 1, "line 2 has no key separator"),
        (["produce", "{topic}", "--format", "json"], "{\n", 1, "line 1 is not JSON"),
        (["produce", "{topic}", "--format", "json"], '{"partition": 9}\n', 1, "no partition 9"),
        (["produce", "{topic}", "-K", ""], "x\n", 2, "--key-separator is empty"),
        (["consume", "{topic}", "-g", ""], "", 2, "the group name is empty"),
        (["produce", "{topic}", "-z", "zip", "x"], "", 2, "compression"),
        (["produce", "{topic}", "--acks", "7000000", "x"], "", 2, "acks"),
        (["produce", "{topic}", "-X", "nope=1", "x"], "", 2, "nope"),
        (["consume", "{topic}", "--isolation", "x"], "", 2, "read_committed"),
        (["consume", "{topic}", "--format", "xml"], "", 2, "xml"),
        (["consume", "{topic}", "-g", "\udcff"], "", 2, "'\\udcff' is not UTF-8 text"),
        (["topic", "create", "{topic}", "-c", "retention.ms=\udcff"], "", 2, "is not UTF-8 text"),
        (["group", "describe", "\udcff"], "", 2, "is not UTF-8 text"),
    ],
)
def test_what_cannot_be(ottla: Ottla, topic: str, words: list[str], stdin: str, code: int, says: str) -> None:
    error = ottla.fails(*(word.format(topic=topic) if "{topic}" in word else word for word in words), stdin=stdin, code=code)
    assert says.replace("{topic}", topic) in error


def test_what_stood_before_a_bad_line_is_sent(ottla: Ottla, topic: str) -> None:
    error = ottla.fails("produce", topic, "-K", ":", stdin="a:b\nbroken\nc:d\n")
    assert f"line 2 has no key separator ':': broken (written to {topic} before it: 1 record)" in error
    assert ottla.ok("consume", topic) == "b\n"


def test_too_large_a_record_is_refused_with_advice(ottla: Ottla, topic: str) -> None:
    """F18, in the user's words."""
    ottla.ok("config", "set", "topic", topic, "max.message.bytes=1000")
    error = ottla.fails("produce", topic, "-p", "0", stdin="x" * 5000)
    assert "1 of 1 records were not written" in error
    assert "max.message.bytes" in error
    error = ottla.fails("produce", topic, "-X", "message.max.bytes=1000", stdin=b"x\n" + b"x" * 5000)
    assert f"line 2: message size too large (written to {topic} before it: 1 record)" in error
    assert ottla.ok("consume", topic) == "x\n"


@pytest.fixture
def orders(ottla: Ottla, topic: str) -> str:
    """Ten orders in partition 0, with headers."""
    lines = [
        {"key": f"c-{n}", "value": {"amount": n * 10, "name": f"Ada {n}"}, "headers": {"x": str(n % 2)}, "partition": 0}
        for n in range(10)
    ]
    ottla.ok("produce", topic, "--format", "json", stdin="\n".join(map(json.dumps, lines)))
    return topic


def test_where_prints_the_records_for_which_it_is_true(ottla: Ottla, orders: str) -> None:
    done = ottla.run("consume", orders, "--where", 'value.amount > 40 and headers["x"] == "1"', "-t", "{offset}")
    assert (done.returncode, done.stdout) == (0, "5\n7\n9\n")
    assert re.fullmatch(r"3 of 10 records \(\d+ B\) match\n", done.stderr)
    assert ottla.ok("consume", orders, "--where", 'timestamp > now - "1h" and offset < 2', "-t", "{offset}") == "0\n1\n"


def test_the_limit_counts_what_is_printed(ottla: Ottla, orders: str) -> None:
    done = ottla.run("consume", orders, "--where", "value.amount >= 30", "-n", "2", "-t", "{offset}")
    assert (done.stdout, done.stderr.startswith("2 of 5 records")) == ("3\n4\n", True)


@pytest.mark.parametrize(
    ("words", "offsets"),
    [
        (["Ada 3"], [3]),
        (["c-4"], [4]),
        (["ADA 5"], []),
        (["ADA 5", "-i"], [5]),
        (["a 6.*60|c-2$", "--regex"], [2]),
        (['"amount":7', "--where", "value.amount == 70"], [7]),
    ],
)
def test_grep_looks_into_key_value_and_headers(ottla: Ottla, orders: str, words: list[str], offsets: list[int]) -> None:
    found = ottla.ok("consume", orders, "--grep", *words, "-t", "{offset}")
    assert [int(line) for line in found.splitlines()] == offsets


def test_grep_finds_headers(ottla: Ottla, topic: str) -> None:
    ottla.ok("produce", topic, "-H", "trace=abc", "one")
    ottla.ok("produce", topic, "two")
    assert ottla.ok("consume", topic, "--grep", "abc") == ottla.ok("consume", topic, "--grep", "trace") == "one\n"


def test_a_group_commits_what_it_read_for_its_selection(ottla: Ottla, orders: str) -> None:
    group = f"{orders}-selecting"
    words = ("consume", orders, "-g", group, "--where", "value.amount >= 30", "-t", "{offset}")
    done = ottla.run(*words, "-n", "2")
    assert (done.returncode, done.stdout) == (0, "3\n4\n"), done.stderr
    assert "2 of 5 records" in done.stderr
    described = json.loads(ottla.ok("group", "describe", group, "--json"))[0]
    assert [row["committed"] for row in described["partitions"] if row["partition"] == 0] == [5]
    assert ottla.ok(*words) == "5\n6\n7\n8\n9\n"


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--where", "a > 1"], "error: --where: a is not the name of a part of a record\n  a > 1\n  ^\n  names are"),
        (["--where", "__import__('os').system('true')"], ".system cannot be called"),
        (["--grep", "(", "--regex"], "error: --grep: '(' is not a regular expression of RE2"),
        (["--grep", ""], "there is no text to look for"),
        (["-i"], "pass --grep TEXT"),
    ],
)
def test_a_wrong_selection_is_told_before_the_broker_is_asked(ottla: Ottla, words: list[str], says: str) -> None:
    assert says in ottla.fails("consume", "no-such-topic", *words, code=2)
