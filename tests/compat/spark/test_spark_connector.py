"""Spark's own connector (`format("kafka")`), also over SASL_SSL: batch and streaming, both ways, and Real-Time Mode (F82). With
`from_avro` it reads what Ottla wrote with schemas of a registry, and the reverse (F83)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from ottla.testing import Broker, Registry
from tests.kit.peers import spark_avro_jars, spark_connector_jars
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


@pytest.mark.slow
@pytest.mark.java
@pytest.mark.timeout(900)
def test_f83_spark_s_connector_and_ottla_read_each_other_s_registry_avro(
    subject: Subject, ottla_registry: Registry, tmp_path: Path
) -> None:
    prefix = f"registry-{os.getpid()}-"
    admin = AdminClient({"bootstrap.servers": subject.bootstrap_servers})
    for created in admin.create_topics([NewTopic(prefix + name, 2, 1) for name in ("written", "piped", "foreign")]).values():
        created.result(30)
    script = str(Path(__file__).with_name("registry_reader.py"))
    jars = ",".join(map(str, spark_connector_jars() + spark_avro_jars()))
    command = [sys.executable, script, subject.bootstrap_servers, ottla_registry.url, prefix, jars, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=800)
    assert done.returncode == 0, done.stderr[-2000:]
    assert json.loads(done.stdout.splitlines()[-1]) == {"of_data_source": True, "of_pipeline": True, "of_connector": True}


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
