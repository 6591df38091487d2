"""Java's transactional producer of both generations, and Kafka's tools: perf, transactions, dump.

The client of 4.3 speaks transaction version 2 where the broker has finalised it; that of 3.9 knows only what was before KIP-890.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Producer

from tests.kit.peers import KAFKA_3, KAFKA_4, java_command, run_tool
from tests.kit.subject import running

pytestmark = pytest.mark.java

Read = Callable[..., list[bytes]]

COPY = Path(__file__).parent / "Copy.java"


def copy(version: str, *args: str) -> str:
    done = subprocess.run(java_command(version, str(COPY), *args), capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}\n(a JDK is needed, not only a runtime)"
    return done.stdout


@pytest.mark.parametrize(("version", "protocol"), [(KAFKA_4, "classic"), (KAFKA_4, "consumer"), (KAFKA_3, "")])
def test_exactly_once_in_java(
    servers: str,
    name: str,
    make_topic: Callable[..., str],
    read: Read,
    fill: Callable[[str, int], None],
    version: str,
    protocol: str,
) -> None:
    source, sink = make_topic(), make_topic()
    fill(source, 300)
    said = copy(version, servers, source, sink, name, "300", protocol)
    assert "fenced\n" in said
    assert "not fenced" not in said
    found = re.search(r"copied (\d+) in (\d+) transactions, (\d+) aborted", said)
    assert found is not None
    assert int(found[1]) == 300
    assert int(found[3]) >= 2
    assert read(sink) == [b"%d" % number for number in range(300)]
    uncommitted = read(sink, "read_uncommitted")
    assert uncommitted[-1] == b"never seen"
    described = run_tool(KAFKA_4, "TransactionsCommand", "--bootstrap-server", servers, "describe", "--transactional-id", name)
    state, epoch = described.stdout.splitlines()[1].split()[4], int(described.stdout.splitlines()[1].split()[3])
    assert state in ("Empty", "CompleteAbort", "CompleteCommit")
    if version == KAFKA_4:
        assert epoch > int(found[2]), "one epoch for each transaction"
    else:
        assert epoch < 5


@pytest.mark.parametrize("version", [KAFKA_4, KAFKA_3])
def test_producer_performance_with_transactions(
    servers: str, name: str, make_topic: Callable[..., str], read: Read, version: str
) -> None:
    topic = make_topic()
    done = run_tool(
        version,
        "ProducerPerformance",
        "--topic", topic,
        "--num-records", "2000",
        "--record-size", "100",
        "--throughput", "-1",
        "--transactional-id", name,
        "--transaction-duration-ms", "50",
        "--producer-props", f"bootstrap.servers={servers}",
        timeout=180,
    )  # fmt: skip
    assert "2000 records sent" in done.stdout, done.stderr
    assert len(read(topic)) == 2000


def test_kafkas_transactions_tool(servers: str, name: str, make_topic: Callable[..., str], read: Read) -> None:
    topic = make_topic()
    # It stays open while several tools are started, each a JVM.
    producer = Producer({"bootstrap.servers": servers, "transactional.id": name, "transaction.timeout.ms": 600_000})
    producer.init_transactions(60)
    producer.begin_transaction()
    producer.produce(topic, b"open")
    assert producer.flush(60) == 0

    def tool(*args: str) -> list[list[str]]:
        done = run_tool(KAFKA_4, "TransactionsCommand", "--bootstrap-server", servers, *args, timeout=180)
        assert done.returncode == 0, done.stderr
        return [line.split("\t") for line in done.stdout.splitlines()]

    listed = {row[0].strip(): row for row in tool("list")}
    assert listed[name][3].strip() == "Ongoing"
    header, row = tool("describe", "--transactional-id", name)
    described = dict(zip((cell.strip() for cell in header), (cell.strip() for cell in row), strict=True))
    assert described["TransactionState"] == "Ongoing"
    assert described["TransactionTimeoutMs"] == "600000"
    assert described["TopicPartitions"] == f"{topic}-0"
    header, row = tool("describe-producers", "--topic", topic, "--partition", "0")
    writer = dict(zip((cell.strip() for cell in header), (cell.strip() for cell in row), strict=True))
    assert writer["ProducerId"] == described["ProducerId"]
    assert writer["CurrentTransactionStartOffset"] == "0"
    hanging = tool("find-hanging", "--topic", topic, "--broker-id", "1", "--max-transaction-timeout", "0")
    assert len(hanging) <= 2, "it is open, but its coordinator knows of it"
    # Ended by force: the records are not to be read, ever.
    run_tool(
        KAFKA_4, "TransactionsCommand", "--bootstrap-server", servers, "abort", "--topic", topic, "--partition", "0",
        "--start-offset", "0", check=True,
    )  # fmt: skip
    assert read(topic) == []


def test_kafka_reads_our_transaction_log(tmp_path: Path) -> None:
    with running(log_dirs=str(tmp_path / "data"), transaction_state_log_num_partitions=1) as subject:
        producer = Producer({"bootstrap.servers": subject.bootstrap_servers, "transactional.id": "told"})
        producer.init_transactions(60)
        for commit in (True, False):
            producer.begin_transaction()
            producer.produce("t", b"x")
            producer.flush(60)
            producer.commit_transaction(60) if commit else producer.abort_transaction(60)
        del producer
    files = sorted(str(path) for path in (tmp_path / "data" / "__transaction_state-0").glob("*.log"))
    for version in (KAFKA_4, KAFKA_3):
        dump = run_tool(version, "DumpLogSegments", "--transaction-log-decoder", "--files", ",".join(files), timeout=180)
        assert dump.returncode == 0, dump.stderr
        lines = [line for line in dump.stdout.splitlines() if "told" in line]
        words = r"state=(\w+)" if version == KAFKA_3 else r"\"transactionStatus\":(\d)"
        states = [found[1] for line in lines if (found := re.search(words, line))]
        names = ["Empty", "Ongoing", "PrepareCommit", "CompleteCommit", "Ongoing", "PrepareAbort", "CompleteAbort"]
        assert states == (names if version == KAFKA_3 else ["0", "1", "2", "4", "1", "3", "5"]), dump.stdout
        assert "isvalid: false" not in dump.stdout
