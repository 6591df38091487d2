"""`ottla exporter` on a real broker: its numbers are those of a client (F71), and it outlives the broker."""

from __future__ import annotations

import gzip
import json
import re
import signal
import subprocess
import urllib.error
import urllib.request
import uuid
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from ottla.exporter import names, service
from ottla.testing import Broker
from tests.kit.exposition import Samples, scrape
from tests.kit.ottla_command import Ottla
from tests.kit.wait import until


@contextmanager
def running(ottla: Ottla, *words: str) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """The command with these options, read often, and its address."""
    command = ottla.command("exporter", "--listen", "127.0.0.1:0", "--interval", "0.2", *words)
    with subprocess.Popen(command, stderr=subprocess.PIPE, env=ottla.environment) as process:
        assert process.stderr is not None
        try:
            found = re.search(r"(http://\S+)/metrics", process.stderr.readline().decode())
            assert found
            yield found[1], process
        finally:
            process.kill()


def rounds(samples: Samples) -> float:
    return samples.of("ottla_exporter_rounds_total", result="ok") or 0


def read_anew(url: str) -> Samples:
    """The page of a round that began after this call."""
    before = rounds(scrape(f"{url}/metrics"))
    return until(lambda: (samples := scrape(f"{url}/metrics")) and rounds(samples) >= before + 2 and samples, "two more rounds")


@pytest.fixture(scope="module")
def url(ottla: Ottla) -> Iterator[str]:
    with running(ottla) as (url, process):
        yield url
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0


@pytest.fixture
def group(ottla: Ottla, topic: str) -> Iterator[Consumer]:
    """Has read a part of partition 0, all of partition 1, nothing of partition 2, and is assigned all of them."""
    producer = Producer({"bootstrap.servers": ottla.bootstrap_servers})
    for number in range(90):
        producer.produce(topic, b"x", partition=number % 3)
    assert producer.flush(60) == 0
    config = {"bootstrap.servers": ottla.bootstrap_servers, "group.id": f"group-{uuid.uuid4().hex[:8]}", "client.id": "reader"}
    consumer = Consumer({**config, "enable.auto.commit": False})
    consumer.subscribe([topic])
    until(lambda: consumer.poll(0.1) is None and len(consumer.assignment()) == 3, "assigned")
    consumer.commit(offsets=[TopicPartition(topic, 0, 10), TopicPartition(topic, 1, 30)], asynchronous=False)
    yield consumer
    consumer.close()


RETENTION_S = 7 * 24 * 3600
"""The default of brokers."""


def test_f71_lag_and_lead_are_those_that_a_client_computes(ottla: Ottla, url: str, topic: str, group: Consumer) -> None:
    samples = read_anew(url)
    (name,) = {each["consumergroup"] for each in samples.with_labels("kafka_consumergroup_lag", topic=topic)}
    (described,) = json.loads(ottla.ok("group", "describe", name, "--json"))
    for partition in described["partitions"]:
        labels = {"consumergroup": name, "topic": topic, "partition": partition["partition"]}
        if partition["committed"] is None:
            assert samples.of("kafka_consumergroup_lag", **labels) == -1
            assert samples.of("kafka_consumergroup_lead", **labels) is None
            continue
        assert samples.of("kafka_consumergroup_current_offset", **labels) == partition["committed"]
        assert samples.of("kafka_consumergroup_lag", **labels) == partition["lag"]
        assert samples.of("kafka_consumergroup_lead", **labels) == partition["lead"]
        lag_s = samples.of("kafka_consumergroup_lag_seconds", **labels)
        assert lag_s is not None
        assert (lag_s == 0) == (partition["lag"] == 0)
        left_s = None if partition["lag"] == 0 else RETENTION_S - lag_s
        assert samples.of("kafka_consumergroup_lead_seconds", **labels) == pytest.approx(left_s)
    assert samples.of("kafka_consumergroup_lag_sum", consumergroup=name, topic=topic) == 20
    assert samples.of("kafka_consumergroup_lead_min", consumergroup=name, topic=topic) == 10
    assert samples.of("kafka_consumergroup_members", consumergroup=name) == 1
    assert samples.of("kafka_consumergroup_state", consumergroup=name, state="Stable") == 1


def test_the_other_spellings_say_the_same(url: str, topic: str, group: Consumer) -> None:
    samples = read_anew(url)
    (name,) = {each["consumergroup"] for each in samples.with_labels("kafka_consumergroup_lag", topic=topic)}
    assert samples.of("kminion_kafka_consumer_group_topic_partition_lag", group_id=name, topic_name=topic, partition_id=0) == 20
    assert samples.of("kminion_kafka_consumer_group_topic_lag", group_id=name, topic_name=topic) == 20
    assert samples.of("kminion_kafka_consumer_group_topic_assigned_partitions", group_id=name, topic_name=topic) == 3
    assert samples.of("kminion_kafka_topic_high_water_mark_sum", topic_name=topic) == 90
    assert samples.of("kminion_kafka_topic_log_dir_size_total_bytes", topic_name=topic)
    info = {"topic_name": topic, "partition_count": 3, "replication_factor": 1, "cleanup_policy": "delete"}
    assert samples.of("kminion_kafka_topic_info", **info) == 1
    (labels,) = samples.with_labels("kafka_consumergroup_group_lag", group=name, partition=0)
    assert labels["client_id"] == "reader"
    assert labels["member_host"]
    assert labels["consumer_id"].startswith("reader-")
    assert samples["kafka_consumergroup_group_lag"][frozenset(labels.items())] == 20
    assert samples.of("kafka_partition_latest_offset", cluster_name=labels["cluster_name"], topic=topic, partition=2) == 30


def test_topics_and_partitions(url: str, topic: str, group: Consumer) -> None:
    samples = read_anew(url)
    assert samples.of("kafka_brokers") == 1
    assert samples.of("kafka_topic_partitions", topic=topic) == 3
    for name, value in (
        ("current_offset", 30),
        ("oldest_offset", 0),
        ("leader_is_preferred", 1),
        ("replicas", 1),
        ("in_sync_replica", 1),
        ("under_replicated_partition", 0),
    ):
        assert samples.of(f"kafka_topic_partition_{name}", topic=topic, partition=1) == value, name


def test_an_open_transaction(ottla: Ottla, url: str, topic: str) -> None:
    before = read_anew(url).of("ottla_transactions", state="Ongoing") or 0
    producer = Producer({"bootstrap.servers": ottla.bootstrap_servers, "transactional.id": topic})
    producer.init_transactions(60)
    producer.begin_transaction()
    producer.produce(topic, b"x", partition=1)
    assert producer.flush(60) == 0
    samples = read_anew(url)
    assert samples.of("ottla_transactions", state="Ongoing") == before + 1
    assert samples["ottla_transaction_open_seconds_max"][frozenset()] > 0
    assert samples.of("ottla_transactions_hanging") == 0
    producer.abort_transaction(60)


def counted(samples: Samples, group: str) -> float | None:
    return samples.of("kafka_consumergroup_rebalances_total", consumergroup=group)


def test_a_rebalance_is_counted(ottla: Ottla, url: str, topic: str, group: Consumer) -> None:
    samples = read_anew(url)
    (name,) = {each["consumergroup"] for each in samples.with_labels("kafka_consumergroup_lag", topic=topic)}
    before = counted(samples, name)
    assert before is not None
    other = Consumer({"bootstrap.servers": ottla.bootstrap_servers, "group.id": name})
    other.subscribe([topic])
    until(lambda: (other.poll(0.1), group.poll(0.1), other.assignment())[2], "the second member has partitions")
    until(lambda: (other.poll(0.1), group.poll(0.1), (counted(scrape(f"{url}/metrics"), name) or 0) > before)[2], "it is counted")
    other.close()


def test_every_family_is_in_the_table_of_names(url: str) -> None:
    known = {family.name for families in names.FAMILIES.values() for family in families}
    assert set(read_anew(url)) <= known | {family.name for family in service.FAMILIES}


def test_http(url: str) -> None:
    with urllib.request.urlopen(f"{url}/healthz", timeout=60) as answer:
        assert answer.read() == b"ok\n"
    compressed = urllib.request.Request(f"{url}/metrics", headers={"Accept-Encoding": "gzip"})
    with urllib.request.urlopen(compressed, timeout=60) as answer:
        assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
        assert b"kafka_brokers 1\n" in gzip.decompress(answer.read())
    with pytest.raises(urllib.error.HTTPError, match="404"):
        urllib.request.urlopen(f"{url}/other", timeout=60)


def test_filters_and_series_of_partitions(ottla: Ottla, topic: str, group: Consumer) -> None:
    with running(ottla, "--topics", f"^{topic}$", "--no-partitions", "--names", "kafka_exporter") as (url, _):
        samples = read_anew(url)
        assert {each["topic"] for each in samples.with_labels("kafka_topic_partitions")} == {topic}
        assert len(samples["kafka_consumergroup_lag_sum"]) == 1
        assert not any(name.startswith(("kminion", "kafka_consumergroup_group")) for name in samples)
        assert "kafka_topic_partition_current_offset" not in samples
        assert "kafka_consumergroup_lag" not in samples
    with running(ottla, "--exclude-topics", topic, "--groups", "^none$") as (url, _):
        samples = read_anew(url)
        assert not samples.with_labels("kafka_topic_partitions", topic=topic)
        assert "kafka_consumergroup_members" not in samples


def test_while_the_broker_is_away_it_serves_and_says_so() -> None:
    with Broker() as broker:
        broker.create_topic("orders")
        with running(Ottla(broker.bootstrap_servers)) as (url, process):
            until(lambda: scrape(f"{url}/metrics").of("kafka_brokers") == 1, "a first round")
            assert scrape(f"{url}/metrics").of("ottla_exporter_up") == 1
            broker.kill()
            until(lambda: scrape(f"{url}/metrics").of("ottla_exporter_up") == 0, "a failed round")
            samples = scrape(f"{url}/metrics")
            assert samples.of("kafka_topic_partitions", topic="orders") == 1, "the last data are still there"
            age = samples.of("ottla_exporter_data_age_seconds")
            assert age is not None
            until(lambda: (scrape(f"{url}/metrics").of("ottla_exporter_data_age_seconds") or 0) > age, "their age grows")
            broker.start()
            until(lambda: scrape(f"{url}/metrics").of("ottla_exporter_up") == 1, "it is back")
            process.terminate()
            assert process.wait(60) == 0
            assert process.stderr is not None
            log = process.stderr.read().decode()
    # A round that the kill met in its midst may also tell it, as partial.
    reason = f"Round failed: no broker answers: {broker.bootstrap_servers}: Connection refused"
    assert log.count(reason) == 1, f"a reason is told once: {log}"
    assert "Read again" in log


@pytest.mark.parametrize("way", ["file", "properties"])
def test_it_logs_in(tmp_path_factory: pytest.TempPathFactory, secure: Broker, way: str) -> None:
    properties = secure.client_properties("admin", "SCRAM-SHA-512")
    if way == "file":
        path = tmp_path_factory.mktemp("client") / "client.properties"
        path.write_text("".join(f"{key}={value}\n" for key, value in properties.items()))
        words = ["--command-config", str(path)]
    else:
        words = [word for key, value in properties.items() for word in ("-X", f"{key}={value}")]
    with running(Ottla(secure.bootstrap_servers), *words) as (url, _):
        assert read_anew(url).of("kafka_brokers") == 1


def test_what_its_user_may_not_see_is_missing_and_logged(tmp_path_factory: pytest.TempPathFactory, secure: Broker) -> None:
    path = tmp_path_factory.mktemp("client") / "client.properties"
    properties = secure.client_properties("alice", "SCRAM-SHA-512")
    path.write_text("".join(f"{key}={value}\n" for key, value in properties.items()))
    with running(Ottla(secure.bootstrap_servers), "--command-config", str(path)) as (url, process):
        samples = read_anew(url)
        assert samples.of("kafka_brokers") == 1
        assert samples.of("ottla_exporter_up") == 1
        assert "kminion_kafka_broker_log_dir_size_total_bytes" not in samples
        process.terminate()
        assert process.stderr is not None
        assert "log directories of broker" in process.stderr.read().decode()


def test_a_wrong_password_is_told(tmp_path_factory: pytest.TempPathFactory, secure: Broker) -> None:
    path = tmp_path_factory.mktemp("client") / "client.properties"
    properties = {**secure.client_properties("admin", "SCRAM-SHA-512")}
    path.write_text("".join(f"{key}={value}\n" for key, value in properties.items()).replace("admin-secret", "wrong"))
    with running(Ottla(secure.bootstrap_servers), "--command-config", str(path)) as (url, process):
        assert process.stderr is not None
        assert "login refused" in process.stderr.readline().decode()
        assert scrape(f"{url}/metrics").of("ottla_exporter_up") == 0


@pytest.fixture(scope="module")
def secure() -> Iterator[Broker]:
    with Broker(security="SASL_SSL") as broker:
        yield broker


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--listen", "9308"], "write host:port"),
        (["--topics", "("], "is not a regular expression"),
        (["--names", "burrow"], "burrow is unknown"),
        (["-X", "security.protocol=SSL", "-X", "ssl.truststore.location=/nowhere.pem"], "invalid client property"),
    ],
    ids=["listen", "regex", "names", "truststore"],
)
def test_wrong_usage(ottla: Ottla, words: list[str], said: str) -> None:
    assert said in ottla.fails("exporter", *words, code=2)


def test_an_address_in_use(ottla: Ottla, url: str) -> None:
    address = url.removeprefix("http://")
    assert f"cannot listen on {address}" in ottla.fails("exporter", "--listen", address)
