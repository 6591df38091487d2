from __future__ import annotations

from dataclasses import replace

import pytest

from ottla.broker.telemetry import client_metrics
from ottla.broker.telemetry.client_metrics import ClientMetrics, metric_name
from ottla.broker.telemetry.instances import Client, Instance
from ottla.broker.telemetry.otlp import Labels, Point

CLIENT = Client(bytes(15) + b"\x07", "app", "librdkafka", "2.1", "10.0.0.7", 5000, connection=1)


def instance(client: Client = CLIENT, metrics: tuple[str, ...] = ("*",), interval_ms: int = 1000) -> Instance:
    return Instance(client, {}, metrics, interval_ms, 1)


def growth(name: str, value: float, labels: Labels = ()) -> Point:
    return Point(name, "", labels, value, is_counter=True, is_delta=True)


def level(name: str, value: float, labels: Labels = ()) -> Point:
    return Point(name, "Help", labels, value, is_counter=False, is_delta=False)


def shown(values: ClientMetrics) -> dict[str, list[float]]:
    return {family.name: [value for _, value in family.samples] for family in values.families()}


def test_growth_is_added_and_levels_are_replaced() -> None:
    values = ClientMetrics()
    for _ in range(2):
        values.add(instance(), [growth("org.apache.kafka.producer.sent.total", 5), level("queue-size", 3)], 0)
    values.add(instance(), [level("queue-size", float("nan"))], 0)
    sent, queue = values.families()
    assert (sent.name, sent.type, sent.help) == (
        "kafka_client_producer_sent_total",
        "counter",
        "org.apache.kafka.producer.sent.total",
    )
    assert (queue.name, queue.type, queue.help) == ("kafka_client_queue_size", "gauge", "Help")
    labels = (
        ("client_id", "app"),
        ("client_instance_id", "AAAAAAAAAAAAAAAAAAAABw"),
        ("client_software_name", "librdkafka"),
        ("client_software_version", "2.1"),
    )
    assert (sent.samples, queue.samples) == ([(labels, 10)], [(labels, 3)])


def test_labels_are_made_legal_and_cannot_say_who_the_client_is() -> None:
    values = ClientMetrics()
    given = (
        ("node.id", "1"),
        ("node-id", "2"),
        ("client_id", "root"),
        ("__name__", "up"),
        ("9", "x"),
        ("é", "y"),
        ("t", "v" * 999),
    )
    values.add(instance(), [level("a", 1, given)], 0)
    ((labels, _),) = next(values.families()).samples
    assert labels[4:] == (("label_9", "x"), ("name__", "up"), ("node_id", "2"), ("t", "v" * 200))


def test_names_cannot_imitate_metrics_of_the_broker() -> None:
    assert metric_name("kafka_server_brokertopicmetrics_messagesin_total").startswith("kafka_client_kafka_server_")
    assert metric_name('x{y="z"} 1\n') == "kafka_client_x_y__z___1_"
    assert len(metric_name("x" * 5000)) < 300


def test_only_what_a_client_is_subscribed_to_is_kept() -> None:
    values = ClientMetrics()
    values.add(instance(metrics=("a.", "b")), [level("a.x", 1), level("a", 1), level("bc", 1)], 0)
    assert list(shown(values)) == ["kafka_client_a_x", "kafka_client_bc"]


def test_series_are_bounded_and_what_is_left_out_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_metrics, "CLIENT_SERIES_MAX", 3)
    monkeypatch.setattr(client_metrics, "SERIES_MAX", 5)
    left_out: list[int] = []
    values = ClientMetrics(left_out.append)
    points = [level(f"m{number}", number) for number in range(4)]
    values.add(instance(), points, 0)
    values.add(instance(replace(CLIENT, instance_id=bytes(15) + b"\x08")), points, 0)
    assert left_out == [1, 2]
    assert sum(len(samples) for samples in shown(values).values()) == 5
    values.add(instance(replace(CLIENT, instance_id=bytes(15) + b"\x09")), points, 0)
    assert left_out == [1, 2, 4]
    assert len(values) == 2, "a client without room is not kept"
    values.add(instance(), [level("m0", 9)], 0)
    assert shown(values)["kafka_client_m0"] == [9, 0]


def test_a_silent_client_is_forgotten_with_its_series(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_metrics, "SERIES_MAX", 1)
    values = ClientMetrics()
    values.add(instance(interval_ms=30_000), [level("a", 1)], 0)
    values.forget_silent(90_000)
    assert shown(values) == {"kafka_client_a": [1]}
    values.forget_silent(90_001)
    assert shown(values) == {}
    values.add(instance(interval_ms=100), [level("b", 2)], 90_001)
    values.forget_silent(150_001)
    assert shown(values) == {"kafka_client_b": [2]}, "a minute at least"
    values.forget_silent(150_002)
    assert shown(values) == {}
