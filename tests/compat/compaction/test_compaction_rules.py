"""What of a compacted topic stays and what goes, by the settings of the topic (F13, L07, L08, L09): as with Apache Kafka 4.3, of
which this file asks the same (`OTTLA_COMPAT_BROKER`)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic, ResourceType

from tests.kit.subject import Subject, running
from tests.kit.wait import until

Found = list[tuple[int, bytes, bytes | None]]

TIMEOUT_S = 120
FILL = b"fill"
"""Long records of this key seal segments; what is looked at are the others."""
SOME = [(b"a", b"1"), (b"b", b"1"), (b"a", b"2"), (b"c", b"1"), (b"b", None), (b"a", b"3")]
ALL_OF_SOME: Found = [(offset, key, value) for offset, (key, value) in enumerate(SOME)]
NEWEST_OF_SOME: Found = [(3, b"c", b"1"), (4, b"b", None), (5, b"a", b"3")]


@pytest.fixture(scope="module")
def broker() -> Iterator[Subject]:
    with running(**{"log.cleaner.backoff.ms": 100, "log.initial.task.delay.ms": 100}) as subject:  # type: ignore[arg-type]
        yield subject


def create(broker: Subject, topic: str, **config: Any) -> None:
    given = {
        "cleanup.policy": "compact",
        "segment.bytes": "1048576",
        "min.cleanable.dirty.ratio": "0.01",
        **{name.replace("_", "."): value for name, value in config.items()},
    }
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    (created,) = admin.create_topics([NewTopic(topic, 1, 1, config=given)]).values()
    created.result(60)


def produce(broker: Subject, topic: str, pairs: list[tuple[bytes, bytes | None]]) -> None:
    """Each in a batch of its own."""
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "linger.ms": 0})
    for key, value in pairs:
        producer.produce(topic, value, key)
        assert producer.flush(60) == 0


def seal(broker: Subject, topic: str) -> None:
    """What was written before is in a sealed segment afterwards."""
    produce(broker, topic, [(FILL, bytes(300_000))] * 5)


def read(broker: Subject, topic: str, isolation: str = "read_uncommitted") -> Found:
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "group.id": "nobody",
            "isolation.level": isolation,
            "enable.partition.eof": True,
            "fetch.wait.max.ms": 50,
        }
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    found: Found = []
    while True:
        (message,) = consumer.consume(1, timeout=60) or [None]  # type: ignore[list-item]
        assert message is not None
        if message.error() is not None:
            consumer.close()
            return [each for each in found if each[1] != FILL]
        found.append((message.offset(), message.key(), message.value()))  # type: ignore[arg-type]


def until_read(broker: Subject, topic: str, expected: Found, meanwhile: Callable[[], None] = lambda: None) -> None:
    """Wait until a consumer reads exactly these records; `meanwhile` is called before each read."""
    found: Found = []

    def is_read() -> bool:
        meanwhile()
        found[:] = read(broker, topic)
        return found == expected

    until(is_read, lambda: found, TIMEOUT_S, every_s=0.2)


def stays_as_it_is(broker: Subject, topic: str, **config: Any) -> None:
    """So configured it is not cleaned, while one beside it with the same records is."""
    beside = f"beside-{topic}"
    create(broker, topic, **config)
    create(broker, beside)
    for each in (topic, beside):
        produce(broker, each, SOME)
        seal(broker, each)
    until_read(broker, beside, NEWEST_OF_SOME)
    assert read(broker, topic) == ALL_OF_SOME


def test_the_newest_of_each_key_stays_at_its_offset_and_tombstones_stay_for_a_day(broker: Subject) -> None:
    create(broker, "newest")
    produce(broker, "newest", SOME)
    seal(broker, "newest")
    until_read(broker, "newest", NEWEST_OF_SOME)


def test_a_tombstone_goes_with_a_later_pass_once_its_time_is_over(broker: Subject) -> None:
    create(broker, "tombstones", delete_retention_ms="0")
    produce(broker, "tombstones", SOME)
    until_read(broker, "tombstones", [(3, b"c", b"1"), (5, b"a", b"3")], lambda: seal(broker, "tombstones"))


def test_what_is_younger_than_min_compaction_lag_ms_stays(broker: Subject) -> None:
    stays_as_it_is(broker, "young", min_compaction_lag_ms="3600000")


def test_max_compaction_lag_ms_seals_and_cleans_what_is_not_dirty_enough(broker: Subject) -> None:
    create(broker, "old", min_cleanable_dirty_ratio="1.0", max_compaction_lag_ms="1000")
    produce(broker, "old", SOME)
    number = 0

    def another() -> None:
        nonlocal number
        number += 1
        produce(broker, "old", [(FILL, b"%d" % number)])

    until_read(broker, "old", NEWEST_OF_SOME, another)


def test_the_dirty_ratio_of_a_topic_counts_as_soon_as_it_is_changed(broker: Subject) -> None:
    stays_as_it_is(broker, "ratio", min_cleanable_dirty_ratio="1.0")
    lower = ConfigEntry("min.cleanable.dirty.ratio", "0.01", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, "ratio", incremental_configs=[lower])
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    admin.incremental_alter_configs([resource])[resource].result(60)
    until_read(broker, "ratio", NEWEST_OF_SOME)


def test_records_of_aborted_transactions_go_and_replace_nothing(broker: Subject) -> None:
    create(broker, "transactions")
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "transactional.id": "compaction-rules", "linger.ms": 0})
    producer.init_transactions(60)
    for pairs, commit in (([(b"a", b"1"), (b"b", b"1")], True), ([(b"a", b"no"), (b"e", b"no")], False), ([(b"b", b"2")], True)):
        producer.begin_transaction()
        for key, value in pairs:
            producer.produce("transactions", value, key)
        assert producer.flush(60) == 0
        (producer.commit_transaction if commit else producer.abort_transaction)(60)
    seal(broker, "transactions")
    # 0 and 1, a marker, 3 and 4, a marker, 6, a marker
    until_read(broker, "transactions", [(0, b"a", b"1"), (6, b"b", b"2")])
    assert read(broker, "transactions", "read_committed") == [(0, b"a", b"1"), (6, b"b", b"2")]
