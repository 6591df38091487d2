"""`ottla.testing.Broker`: starts, restarts, dies with its parent."""

from __future__ import annotations

import os
import select
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

import ottla
from ottla.testing import Broker, BrokerFailed

TIMEOUT_S = 60


def produce(broker: Broker, topic: str, value: bytes) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    producer.produce(topic, value, partition=0)
    assert producer.flush(TIMEOUT_S) == 0


def first_value(broker: Broker, topic: str) -> bytes | None:
    consumer = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": "x", "enable.auto.commit": False})
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        message = consumer.poll(TIMEOUT_S)
        return None if message is None else message.value()
    finally:
        consumer.close()


def test_lazy_attribute() -> None:
    assert ottla.testing.Broker is Broker
    with pytest.raises(AttributeError, match="nope"):
        _ = ottla.nope


def test_import_ottla_is_light() -> None:
    code = "import sys, ottla; print(sorted(m for m in sys.modules if m.startswith(('ottla', 'asyncio', 'subprocess'))))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=TIMEOUT_S)
    assert done.stdout == "['ottla']\n"


def test_serves_and_leaves_nothing_behind() -> None:
    with Broker(num_partitions=2) as broker:
        broker.create_topic("t")
        produce(broker, "t", b"v")
        assert first_value(broker, "t") == b"v"
        data_dir, process = broker.data_dir, broker.process
        assert data_dir is not None
        assert (data_dir / "t-0").is_dir()
        broker.delete_topic("t")
    assert not data_dir.exists()
    assert not data_dir.parent.exists()
    assert process is not None
    assert process.returncode == 0
    assert not broker.running


def test_restart_keeps_address_and_data() -> None:
    """Also after SIGKILL: what was acknowledged is in the page cache."""
    with Broker() as broker:
        address = broker.bootstrap_servers
        broker.create_topic("t")
        produce(broker, "t", b"kept")
        broker.kill()
        assert not broker.running
        broker.start()
        assert broker.bootstrap_servers == address
        assert first_value(broker, "t") == b"kept"
        broker.restart()
        assert (broker.bootstrap_servers, first_value(broker, "t")) == (address, b"kept")


def test_given_listeners_keep_their_ports_over_a_restart() -> None:
    """Port 0 is chosen once; what is advertised is not what is bound."""
    with Broker(
        listeners="ONE://0.0.0.0:0,TWO://127.0.0.1:0",
        advertised_listeners="ONE://localhost:0,TWO://127.0.0.1:0",
        listener_security_protocol_map="ONE:PLAINTEXT,TWO:PLAINTEXT",
        inter_broker_listener_name="ONE",
    ) as broker:
        address = broker.bootstrap_servers
        assert address.startswith("localhost:")
        broker.restart()
        assert broker.bootstrap_servers == address
        broker.create_topic("t")


def test_a_broker_that_does_not_run_is_asked_for_nothing() -> None:
    with Broker() as broker:
        broker.kill()
        with pytest.raises(BrokerFailed, match="not running; it logged"):
            broker.create_topic("orders")


def test_a_given_directory_stays(tmp_path: Path) -> None:
    with Broker(data_dir=tmp_path / "data"):
        pass
    assert (tmp_path / "data" / "meta.properties").exists()


def test_settings_are_text() -> None:
    broker = Broker(
        {"log.segment.bytes": 5}, auto_create_topics_enable=False, log_cleaner_io_buffer_load_factor=0.5, log_dirs=["a", "b"]
    )
    assert broker.settings == {
        "log.segment.bytes": "5",
        "auto.create.topics.enable": "false",
        "log.cleaner.io.buffer.load.factor": "0.5",
        "log.dirs": "a,b",
    }


def test_a_start_that_fails_says_why() -> None:
    with pytest.raises(BrokerFailed, match=r"num\.partitons") as caught, Broker({"num.partitons": 3}):
        pass
    assert "did you mean num.partitions" in str(caught.value)


def test_a_given_port_in_use_is_told() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        broker = Broker(listeners=f"PLAINTEXT://127.0.0.1:{other.getsockname()[1]}")
        with pytest.raises(BrokerFailed, match="port"):
            broker.start()
        broker.close()


def test_the_port_is_outside_the_ephemeral_range() -> None:
    with Broker() as broker:
        assert int(broker.bootstrap_servers.rpartition(":")[2]) < 32_768


@pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="needs pidfd")
def test_dies_with_its_parent() -> None:
    """kill -9 of the process that started it: nobody is left to tidy up, and the broker ends all the same."""
    code = (
        "from ottla.testing import Broker; import sys\n"
        "broker = Broker().start(); print(broker.process.pid, broker.data_dir, flush=True); sys.stdin.read()"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        pid, data_dir = parent.stdout.readline().split()
        watched = os.pidfd_open(int(pid))
        parent.send_signal(signal.SIGKILL)
        parent.wait(TIMEOUT_S)
    ended, _, _ = select.select([watched], [], [], TIMEOUT_S)
    os.close(watched)
    assert ended, "the broker outlived its parent"
    assert (Path(data_dir) / ".kafka_cleanshutdown").exists()
    subprocess.run(["rm", "-r", str(Path(data_dir).parent)], check=True)
