"""Spark's own connector (`format("kafka")`), also over SASL_SSL: batch and streaming, both ways, and Real-Time Mode (F82)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from ottla.testing import Broker
from tests.kit.peers import spark_connector_jars
from tests.kit.subject import Subject

RECORDS = 300


@pytest.mark.slow
@pytest.mark.java
@pytest.mark.timeout(1600)
def test_f82_sparks_own_connector(subject: Subject, tmp_path: Path) -> None:
    works(
        {"bootstrap.servers": subject.bootstrap_servers}, AdminClient({"bootstrap.servers": subject.bootstrap_servers}), tmp_path
    )


@pytest.mark.slow
@pytest.mark.java
@pytest.mark.timeout(1600)
def test_sparks_own_connector_over_sasl_ssl(tmp_path: Path) -> None:
    with Broker(security="SASL_SSL") as broker:
        options = broker.client_properties() | {"bootstrap.servers": broker.bootstrap_servers}
        works(options, AdminClient(broker.client_config()), tmp_path)


def works(options: dict[str, str], admin: AdminClient, scratch: Path) -> None:
    """`options`: of Java's clients."""
    prefix = f"spark-{os.getpid()}-"
    topics = [NewTopic(prefix + name, 3, 1) for name in ("in", "copied", "realtime")]
    for created in admin.create_topics(topics).values():
        created.result(30)
    script = str(Path(__file__).with_name("connector.py"))
    jars = ",".join(map(str, spark_connector_jars()))
    done = subprocess.run(
        [sys.executable, script, json.dumps(options), prefix, jars, str(scratch)],
        capture_output=True,
        text=True,
        timeout=1500,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["batch_rows"] == RECORDS
    assert found["batch_right"]
    assert found["partitions"] == [0, 1, 2]
    assert found["batch_until_3"] == 9
    assert found["by_time"] == RECORDS
    assert found["stream_batches"] >= 3
    assert found["copied"] == list(range(RECORDS))
    assert found["realtime_failure"] is None, found["realtime_failure"]
    assert found["realtime_rows"] == RECORDS + 10
    assert found["realtime_right"]
