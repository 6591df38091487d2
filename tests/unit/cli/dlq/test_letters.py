from __future__ import annotations

from ottla.cli.dlq.letters import PIPELINES, is_dead_letter_name, read_letter
from ottla.cli.formats import Incoming
from ottla.pipelines.dead_letters import EXPECTATION, HEADERS


def origin(*headers: tuple[str, bytes | None]) -> tuple[object, ...]:
    found = read_letter(Incoming("orders.dlq", 0, 7, 1_000, "CreateTime", b"k", b"v", list(headers)))
    return found.source, found.flow, found.reason, found.headers


def test_the_headers_of_pipelines_are_those_they_write() -> None:
    assert (PIPELINES.topic, PIPELINES.partition, PIPELINES.offset, PIPELINES.flow, *PIPELINES.reasons) == HEADERS


def test_a_letter_of_a_pipeline() -> None:
    values = (b"orders", b"2", b"1234", b"revenue", b"no json")
    own = list(zip(HEADERS, values, strict=True))
    assert origin(("trace", b"x"), *own, ("null", None)) == (
        "orders-2@1234",
        "revenue",
        "no json",
        [("trace", b"x"), ("null", None)],
    )


def test_a_row_of_a_pipeline_has_no_place() -> None:
    headers = (("ottla.flow", b"totals"), ("ottla.reason", b"rich"), (EXPECTATION, b"total > 10"), ("trace", b"x"))
    assert origin(*headers) == (None, "totals", "rich", [("trace", b"x")])


def test_the_last_failure_counts() -> None:
    first = list(zip(HEADERS, (b"orders", b"2", b"1", b"old", b"first"), strict=True))
    second = list(zip(HEADERS, (b"orders", b"2", b"9", b"new", b"second"), strict=True))
    assert origin(*first, *second) == ("orders-2@9", "new", "second", [])


def test_a_letter_of_a_connector() -> None:
    assert origin(
        ("__connect.errors.topic", b"payments"),
        ("__connect.errors.partition", b"0"),
        ("__connect.errors.offset", b"5"),
        ("__connect.errors.connector.name", b"jdbc-sink"),
        ("__connect.errors.exception.class.name", b"org.example.DataException"),
        ("__connect.errors.exception.stacktrace", b"at org.example"),
        ("mine", b"1"),
    ) == ("payments-0@5", "jdbc-sink", "org.example.DataException", [("mine", b"1")])


def test_a_letter_of_spring() -> None:
    assert origin(
        ("kafka_dlt-original-topic", b"orders"),
        ("kafka_dlt-original-partition", (3).to_bytes(4, "big")),
        ("kafka_dlt-original-offset", (70_000).to_bytes(8, "big")),
        ("kafka_dlt-original-consumer-group", b"billing"),
        ("kafka_dlt-exception-message", b"boom"),
    ) == ("orders-3@70000", "billing", "boom", [])


def test_headers_that_are_damaged_or_missing() -> None:
    assert origin(("ottla.topic", b"orders"), ("ottla.partition", b"-x"), ("ottla.offset", None))[0] == "orders"
    assert origin(("ottla.topic", b"or\xffders"), ("ottla.reason", b"\xff"))[:3] == ("or\ufffdders", None, "\ufffd")
    assert origin(("ottla.topic", b"orders"), ("ottla.partition", b"9" * 5000), ("ottla.offset", b"9" * 5000))[0] == "orders"
    negative = (-1).to_bytes(4, "big", signed=True)
    assert origin(("kafka_dlt-original-topic", b"orders"), ("kafka_dlt-original-partition", negative))[0] == "orders"
    assert origin(("anything", b"1")) == (None, None, None, [("anything", b"1")])


def test_names() -> None:
    assert all(map(is_dead_letter_name, ("orders.dlq", "orders-DLQ", "orders.DLT", "a.dead-letter")))
    assert not any(map(is_dead_letter_name, ("orders", "dlq", "orders.dlq.v2")))
