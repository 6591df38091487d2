"""kcat 1.7.1: produce, consume, list, query, from the command line."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable

import pytest

from tests.kit.peers import kcat


def run(bootstrap: str, *args: str, input: bytes | None = None) -> str:
    done = subprocess.run([kcat(), "-b", bootstrap, *args], input=input, capture_output=True, timeout=180)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.decode()


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_produce_and_consume(bootstrap: str, topic: str, codec: str) -> None:
    lines = "".join(f"k{number}:value {number}\n" for number in range(1_000))
    run(bootstrap, "-P", "-t", topic, "-p", "0", "-K", ":", "-z", codec, "-H", "origin=kcat", input=lines.encode())
    out = run(bootstrap, "-C", "-t", topic, "-p", "0", "-o", "beginning", "-e", "-q", "-f", "%o %k:%s %h\n").splitlines()
    assert out == [f"{number} k{number}:value {number} origin=kcat" for number in range(1_000)]


def test_offsets_and_times(bootstrap: str, topic: str) -> None:
    """F32: from an offset, from the end, between times."""
    run(bootstrap, "-P", "-t", topic, "-p", "0", input=b"0\n1\n2\n3\n4\n")
    stamps = run(bootstrap, "-C", "-t", topic, "-p", "0", "-o", "beginning", "-e", "-q", "-f", "%T\n").split()
    assert run(bootstrap, "-C", "-t", topic, "-p", "0", "-o", "3", "-e", "-q").split() == ["3", "4"]
    assert run(bootstrap, "-C", "-t", topic, "-p", "0", "-o", "-2", "-e", "-q").split() == ["3", "4"]
    assert run(bootstrap, "-C", "-t", topic, "-p", "0", "-o", f"s@{stamps[0]}", "-e", "-q").split() == ["0", "1", "2", "3", "4"]
    assert run(bootstrap, "-Q", "-t", f"{topic}:0:{stamps[0]}") == f"{topic} [0] offset 0\n"
    assert run(bootstrap, "-Q", "-t", f"{topic}:0:-1") == f"{topic} [0] offset 5\n"
    assert run(bootstrap, "-Q", "-t", f"{topic}:0:-2") == f"{topic} [0] offset 0\n"


def test_metadata(bootstrap: str, new_topic: Callable[..., str]) -> None:
    topic = new_topic(partitions=3)
    found = json.loads(run(bootstrap, "-L", "-J"))
    assert sorted(broker["name"] for broker in found["brokers"]) == sorted(bootstrap.split(","))
    (mine,) = (each for each in found["topics"] if each["topic"] == topic)
    brokers = {broker["id"] for broker in found["brokers"]}
    assert [each["partition"] for each in mine["partitions"]] == [0, 1, 2]
    assert {each["leader"] for each in mine["partitions"]} == brokers
    for each in mine["partitions"]:
        assert {one["id"] for one in each["replicas"]} == {one["id"] for one in each["isrs"]} == brokers


def test_idempotent_and_acks(bootstrap: str, topic: str) -> None:
    lines = "".join(f"{number}\n" for number in range(500)).encode()
    run(bootstrap, "-P", "-t", topic, "-p", "0", "-X", "enable.idempotence=true", input=lines)
    run(bootstrap, "-P", "-t", topic, "-p", "0", "-X", "acks=0", input=lines)
    assert run(bootstrap, "-C", "-t", topic, "-p", "0", "-o", "beginning", "-e", "-q").encode() == lines * 2


def test_tombstones(bootstrap: str, topic: str) -> None:
    run(bootstrap, "-P", "-t", topic, "-p", "0", "-K", ":", "-Z", input=b"a:1\nb:\n")
    assert (
        run(bootstrap, "-C", "-t", topic, "-p", "0", "-o", "beginning", "-e", "-q", "-Z", "-f", "%k=%s %S\n")
        == "a=1 1\nb=NULL -1\n"
    )
