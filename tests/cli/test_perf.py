"""`ottla perf`: that it measures what it says, not how much."""

from __future__ import annotations

import json
import signal
import subprocess

from tests.kit.ottla_command import TIMEOUT_S, Ottla

PERCENTILES = ["avg", "p50", "p95", "p99", "p99.9", "max"]


def test_produce_then_consume(ottla: Ottla, topic: str) -> None:
    produced = json.loads(ottla.ok("perf", "produce", topic, "-n", "3000", "--size", "1024", "-z", "lz4", "--json"))
    assert (produced["records"], produced["mb"]) == (3000, 2.93)
    assert list(produced["latency_ms"]) == PERCENTILES
    values = list(produced["latency_ms"].values())
    assert values[1:] == sorted(values[1:])
    consumed = json.loads(ottla.ok("perf", "consume", topic, "--json"))
    assert (consumed["records"], consumed["mb"]) == (3000, 2.93)
    assert json.loads(ottla.ok("perf", "consume", topic, "-n", "100", "--json"))["records"] == 100
    assert "records/s" in ottla.ok("perf", "consume", topic)
    assert "holds 3000 records, not 4000" in ottla.fails("perf", "consume", topic, "-n", "4000")


def test_throughput_is_held(ottla: Ottla, topic: str) -> None:
    """The last of 100 records at 1,000/s cannot leave before 99 ms have passed."""
    produced = json.loads(ottla.ok("perf", "produce", topic, "-n", "100", "--throughput", "1000", "--json"))
    assert produced["seconds"] >= 0.099


def test_latency(ottla: Ottla, topic: str) -> None:
    result = json.loads(ottla.ok("perf", "latency", topic, "-n", "20", "--json"))
    assert result["records"] == 20
    assert list(result["latency_ms"]) == PERCENTILES
    # One to warm up, then the twenty.
    assert json.loads(ottla.ok("topic", "describe", topic, "--json"))[0]["records"] == 21
    assert "p99.9" in ottla.ok("perf", "latency", topic, "-n", "3")


def test_unknown_topic(ottla: Ottla, topic: str) -> None:
    assert f"did you mean {topic}?" in ottla.fails("perf", "produce", topic + "x")
    assert "does not exist" in ottla.fails("perf", "consume", topic + "x")


def test_ctrl_c_ends_it(ottla: Ottla, topic: str) -> None:
    with subprocess.Popen(
        ottla.command("perf", "produce", topic, "-n", "1000000", "--throughput", "100"),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=ottla.environment,
    ) as process:
        assert ottla.ok("consume", topic, "-f", "-n", "1") != ""  # it is under way
        process.send_signal(signal.SIGINT)
        assert process.communicate(timeout=TIMEOUT_S) == (b"", b"")
        assert process.returncode == 130
