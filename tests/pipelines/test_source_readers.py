"""The readers of format("ottla") as Spark calls them, without a Spark: planning, reading, lost data, the group's offsets.

F78, F80; the same on Ottla and on Apache Kafka 4.3, whose behaviour is the reference.
"""

from __future__ import annotations

import itertools
import json
import logging
import pickle
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import Producer
from confluent_kafka import TopicPartition as ConfluentPartition
from confluent_kafka.admin import AdminClient, NewPartitions
from pyspark.sql.types import StructType

from ottla.client.blocking import BrokerAway, Client
from ottla.client.offsets import committed_offsets
from ottla.client.options import InvalidOption, plain_options
from ottla.errors import KafkaError
from ottla.pipelines.data_source import fetching, read_limits
from ottla.pipelines.data_source.planning import DataLost
from ottla.pipelines.data_source.read_limits import ARE_KNOWN, ReadAllAvailable, ReadMaxRows, ReadMinRows, SimpleReader
from ottla.pipelines.data_source.readers import OttlaReader, OttlaSource, OttlaStreamReader, WithoutLimits
from ottla.testing import Broker
from ottla.types import TopicPartition
from tests.kit.subject import EITHER, KEEPING, running
from tests.kit.wait import until

_numbers = itertools.count()
ALL = ReadAllAvailable()
has_limits = pytest.mark.skipif(not ARE_KNOWN, reason="Spark 4.1 has no limits for sources in Python")
Document = dict[str, Any]


class Kafka(Broker):
    """Apache Kafka behind the methods of `ottla.testing.Broker`. Another context manager starts and stops it."""

    def __init__(self, bootstrap_servers: str) -> None:
        super().__init__()
        self._bootstrap_servers = bootstrap_servers

    @property
    def running(self) -> bool:
        return True


@pytest.fixture(scope="module", params=EITHER)
def broker(request: pytest.FixtureRequest) -> Iterator[Broker]:
    if request.param == "ottla":
        with Broker({"group.initial.rebalance.delay.ms": 0, **KEEPING}) as broker:
            yield broker
        return
    with running(request.param) as kafka:
        yield Kafka(kafka.bootstrap_servers)


@pytest.fixture
def topic(broker: Broker) -> str:
    name = f"t{next(_numbers)}"
    broker.create_topic(name, 2)
    return name


@pytest.fixture
def produce(broker: Broker) -> Callable[..., None]:
    def send(topic: str, partition: int, *values: bytes, timestamp_ms: int = 0, **settings: Any) -> None:
        # In their order, also where a batch is refused at first: Kafka's broker hears of a new topic after its controller.
        ordered = {"enable.idempotence": True, "linger.ms": 20}
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers, **ordered, **settings})
        for value in values:
            producer.produce(topic, value, b"k" + value, partition, timestamp=timestamp_ms, headers=[("h", value)])
        assert producer.flush(60) == 0

    return send


def source(broker: Broker, topic: str | None = None, **options: Any) -> OttlaSource:
    given = {name.replace("kafka_", "kafka.").replace("_", "."): str(value) for name, value in options.items()}
    subscribed = {} if topic is None else {"subscribe": topic}
    return OttlaSource({"kafka.bootstrap.servers": broker.bootstrap_servers, **subscribed, **given})


def columns_of(made: OttlaSource) -> StructType:
    found = made.schema()
    assert isinstance(found, StructType)
    return found


def batch(broker: Broker, topic: str | None = None, *, schema: StructType | None = None, **options: Any) -> OttlaReader:
    made = source(broker, topic, **options)
    return made.reader(schema or columns_of(made))


def stream(broker: Broker, topic: str | None = None, **options: Any) -> OttlaStreamReader:
    made = pickle.loads(pickle.dumps(source(broker, topic, **options)))
    reader = made.streamReader(made.schema())
    if isinstance(reader, WithoutLimits):
        reader = reader.reader
    assert isinstance(reader, OttlaStreamReader)
    return reader


def rows(reader: OttlaReader | OttlaStreamReader, partitions: list[Any]) -> list[Document]:
    """What tasks read, each with a reader of its own that came through pickle, as in an executor."""
    found: list[Document] = []
    for partition in partitions:
        task, piece = pickle.loads(pickle.dumps((reader, partition)))
        for part in task.read(piece):
            part.validate(full=True)
            found += part.to_pylist()
    return found


def values(reader: OttlaReader | OttlaStreamReader, partitions: list[Any]) -> list[bytes]:
    return sorted(row["value"] for row in rows(reader, partitions))


def micro_batches(reader: OttlaStreamReader, start: Document, limit: Any = ALL) -> Iterator[tuple[Document, Document]]:
    """The (start, end) that Spark would run, until there is nothing new."""
    while (end := reader.latestOffset(start, limit)) != start:
        assert json.loads(json.dumps(end)) == end
        yield start, end
        start = end


@has_limits
def test_a_small_batch_comes_with_its_plan(broker: Broker, topic: str, produce: Callable[..., None]) -> None:
    """As Spark's process that plans batches asks for it."""
    produce(topic, 0, *(b"%d" % number for number in range(600)))
    reader = stream(broker, topic, startingOffsets="earliest")
    start = reader.initialOffset()
    end = reader.latestOffset(start, ALL)
    (plan,) = reader.partitions(start, end)
    assert isinstance(reader, SimpleReader)
    given: Any = reader.getCache(start, end)
    found = [row["value"] for part in given for row in part.to_pylist()]
    assert found == [row["value"] for row in rows(reader, [plan])]
    assert len(found) == 600
    assert not isinstance(reader, SimpleReader), "Spark asks for the lag, and so on"
    # Spark may lose what it got, and may not ask for it.
    assert [row["value"] for row in rows(reader, reader.partitions(start, end))] == found
    # A batch of more records, or of larger ones, is for tasks.
    for values_ in ((b"%d" % number for number in range(1_001)), (b"x" * 300_000 for _ in range(4))):
        start = end
        produce(topic, 1, *values_, **{"message.max.bytes": 2_000_000})
        end = reader.latestOffset(start, ALL)
        assert len(reader.partitions(start, end)) == 1
        assert not isinstance(reader, SimpleReader)


def test_f78_all_columns_of_a_batch(broker: Broker, topic: str, produce: Callable[..., None]) -> None:
    produce(topic, 1, b"a", timestamp_ms=1_700_000_000_123)
    reader = batch(broker, topic, includeHeaders="true")
    (row,) = rows(reader, reader.partitions())
    assert row["timestamp"].timestamp() == 1_700_000_000.123
    assert {name: value for name, value in row.items() if name != "timestamp"} == {
        "key": b"ka",
        "value": b"a",
        "topic": topic,
        "partition": 1,
        "offset": 0,
        "timestampType": 0,
        "headers": [{"key": "h", "value": b"a"}],
    }


def test_f78_a_schema_chooses_columns_and_text(broker: Broker, topic: str, produce: Callable[..., None]) -> None:
    produce(topic, 0, b"a", b"b")
    from pyspark.sql.types import LongType, StringType

    wanted = StructType().add("offset", LongType()).add("value", StringType())
    reader = batch(broker, topic, schema=wanted)
    assert rows(reader, reader.partitions()) == [{"offset": 0, "value": "a"}, {"offset": 1, "value": "b"}]
    with pytest.raises(InvalidOption, match="the columns of a topic are key binary"):
        batch(broker, topic, schema=StructType().add("colour", StringType()))
    with pytest.raises(InvalidOption, match="includeHeaders"):
        batch(broker, topic, schema=columns_of(source(broker, topic, includeHeaders="true")))


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_f78_many_records_of_all_codecs_in_several_fetches(
    broker: Broker, topic: str, produce: Callable[..., None], codec: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetching, "ROWS_MAX", 700)
    sent = [b"%06d" % number * 10 for number in range(5000)]
    produce(topic, 0, *sent, **{"compression.type": codec, "batch.num.messages": 300})
    reader = batch(broker, topic, kafka_max_partition_fetch_bytes=20_000)
    found = rows(reader, reader.partitions())
    assert [row["value"] for row in found] == sent
    assert [row["offset"] for row in found] == list(range(5000))
    assert values(batch(broker, topic, minPartitions=7), batch(broker, topic, minPartitions=7).partitions()) == sent
    assert len(batch(broker, topic, minPartitions=7).partitions()) == 7
    assert len(batch(broker, topic, maxRecordsPerPartition=1000).partitions()) == 5


def test_f78_positions_of_a_batch(broker: Broker, topic: str, produce: Callable[..., None]) -> None:
    for number in range(4):
        produce(topic, 0, b"%d" % number, timestamp_ms=1000 + number * 100)
    produce(topic, 1, b"z", timestamp_ms=5000)

    def read(**options: Any) -> list[bytes]:
        reader = batch(broker, topic, **options)
        return values(reader, reader.partitions())

    def by_partition(zero: int, one: int) -> str:
        return json.dumps({topic: {"0": zero, "1": one}})

    assert read(startingOffsets=by_partition(2, -2)) == [b"2", b"3", b"z"]
    assert read(startingOffsets=by_partition(1, 1), endingOffsets=by_partition(3, -1)) == [b"1", b"2"]
    assert read(startingTimestamp="1150") == [b"2", b"3", b"z"]
    assert read(startingTimestamp="1150", endingTimestamp="1300") == [b"2"]
    assert read(startingOffsetsByTimestamp=by_partition(1300, 0)) == [b"3", b"z"]
    assert read(startingTimestamp="5000", startingOffsetsByTimestampStrategy="latest") == [b"z"]
    assert read(endingTimestamp="9000") == [b"0", b"1", b"2", b"3", b"z"]
    with pytest.raises(InvalidOption, match=f"startingTimestamp.*{topic}-0"):
        read(startingTimestamp="5000")
    with pytest.raises(InvalidOption, match=f"{topic}-1.*this one is missing"):
        read(startingOffsets=json.dumps({topic: {"0": 0}}))
    with pytest.raises(InvalidOption, match="nobody-7"):
        read(startingOffsets=json.dumps({topic: {"0": 0, "1": 0}, "nobody": {"7": 0}}))
    with pytest.raises(DataLost, match=f"{topic}-0 ends at offset 4, before offset 9"):
        read(startingOffsets=by_partition(9, 0))


def test_f78_an_empty_topic_and_one_that_is_not_there(broker: Broker, topic: str) -> None:
    assert batch(broker, topic).partitions() == []
    from pyspark.sql.datasource import InputPartition

    assert list(batch(broker, topic).read(InputPartition(None))) == []
    with pytest.raises(KafkaError, match="topic no-such does not exist"):
        batch(broker, "no-such").partitions()
    with pytest.raises(InvalidOption, match=f"assign.*{topic}-9"):
        batch(broker, assign=json.dumps({topic: [0, 9]})).partitions()


def test_f78_partitions_with_few_records_are_one_task(broker: Broker, topic: str, produce: Callable[..., None]) -> None:
    """Unless the options ask for more tasks, or for smaller ones."""
    produce(topic, 0, b"a", b"b")
    produce(topic, 1, b"c")

    def tasks(**options: Any) -> list[list[bytes]]:
        reader = batch(broker, topic, **options)
        return [values(reader, [partition]) for partition in reader.partitions()]

    assert tasks() == [[b"a", b"b", b"c"]]
    assert tasks(minPartitions=2) == [[b"a", b"b"], [b"c"]]
    assert tasks(maxRecordsPerPartition=2) == [[b"a", b"b"], [b"c"]]


def test_f78_assigned_partitions_and_patterns(broker: Broker, topic: str, produce: Callable[..., None]) -> None:
    produce(topic, 0, b"zero")
    produce(topic, 1, b"one")
    assigned = batch(broker, assign=json.dumps({topic: [1]}))
    assert values(assigned, assigned.partitions()) == [b"one"]
    matching = batch(broker, subscribePattern=f"x|{topic}")
    assert values(matching, matching.partitions()) == [b"one", b"zero"]
    assert batch(broker, subscribePattern="t").partitions() == [], "the whole name must match"


def test_f79_only_committed_records_are_read_unless_told(broker: Broker, topic: str) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "transactional.id": topic})
    producer.init_transactions(30)
    for word, commit in ((b"first", True), (b"aborted", False), (b"second", True)):
        producer.begin_transaction()
        producer.produce(topic, word, partition=0)
        producer.flush(60)
        producer.commit_transaction(30) if commit else producer.abort_transaction(30)
    producer.begin_transaction()
    producer.produce(topic, b"open", partition=0)
    producer.flush(60)
    committed = batch(broker, topic)
    assert values(committed, committed.partitions()) == [b"first", b"second"]
    everything = batch(broker, topic, kafka_isolation_level="read_uncommitted")
    assert values(everything, everything.partitions()) == [b"aborted", b"first", b"open", b"second"]
    reader = stream(broker, topic, startingOffsets="earliest")
    ((start, end),) = micro_batches(reader, reader.initialOffset())
    assert end[topic]["0"] == 6
    assert values(reader, reader.partitions(start, end)) == [b"first", b"second"]
    producer.commit_transaction(30)
    # The coordinator writes the markers after it answers.
    ((start, end),) = until(lambda: list(micro_batches(reader, end)), "a micro-batch after the commit")
    assert values(reader, reader.partitions(start, end)) == [b"open"]


def test_f78_a_stream_reads_what_comes_and_begins_at_the_end(broker: Broker, topic: str, produce: Callable[..., None]) -> None:
    produce(topic, 0, b"before")
    reader = stream(broker, topic)
    start = reader.initialOffset()
    assert start[topic] == {"0": 1, "1": 0}
    assert reader.latestOffset(start, ALL) == start
    assert reader.partitions(start, start) == []
    produce(topic, 0, b"a", b"b")
    produce(topic, 1, b"c")
    ((begin, end),) = micro_batches(reader, start)
    assert values(reader, reader.partitions(begin, end)) == [b"a", b"b", b"c"]
    assert reader.reportLatestOffset() == end
    reader.stop()
    assert reader.latestOffset(end, ALL) == end, "a stopped reader connects again"


@has_limits
def test_f78_a_limit_makes_several_batches(broker: Broker, topic: str, produce: Callable[..., None]) -> None:
    produce(topic, 0, *(b"%d" % number for number in range(30)))
    produce(topic, 1, *(b"x%d" % number for number in range(10)))
    reader = stream(broker, topic, startingOffsets="earliest", maxOffsetsPerTrigger=16)
    limit = reader.getDefaultReadLimit()
    assert limit == ReadMaxRows(16)
    batches = list(micro_batches(reader, reader.initialOffset(), limit))
    assert [end[topic] for _, end in batches] == [{"0": 12, "1": 4}, {"0": 24, "1": 8}, {"0": 30, "1": 10}]
    assert reader.reportLatestOffset() == batches[-1][1]
    found = [value for start, end in batches for value in values(reader, reader.partitions(start, end))]
    assert len(found) == len(set(found)) == 40


@has_limits
def test_f78_available_now_ends_where_the_topic_ended(broker: Broker, topic: str, produce: Callable[..., None]) -> None:
    produce(topic, 0, *(b"%d" % number for number in range(10)))
    reader = stream(broker, topic, startingOffsets="earliest", maxOffsetsPerTrigger=4)
    start = reader.initialOffset()
    reader.prepareForTriggerAvailableNow()
    produce(topic, 0, b"late")
    produce(topic, 1, b"late")
    ends = [end[topic]["0"] for _, end in micro_batches(reader, start, reader.getDefaultReadLimit())]
    assert ends == [4, 8, 10]


@has_limits
def test_f78_a_stream_may_wait_for_more(broker: Broker, topic: str, produce: Callable[..., None]) -> None:
    reader = stream(broker, topic, startingOffsets="earliest", minOffsetsPerTrigger=5, maxTriggerDelay="1h")
    limit = reader.getDefaultReadLimit()
    assert limit == ReadMinRows(5)
    start = reader.initialOffset()
    produce(topic, 0, b"1", b"2", b"3")
    assert reader.latestOffset(start, limit) == start
    assert reader.latestOffset(start, ALL) != start, "Spark may ask for all there is"
    produce(topic, 1, b"4", b"5")
    assert reader.latestOffset(start, limit) != start
    impatient = stream(broker, topic, startingOffsets="latest", minOffsetsPerTrigger=50, maxTriggerDelay="0s")
    start = impatient.initialOffset()
    produce(topic, 1, b"6")
    assert impatient.latestOffset(start, limit) != start


def test_f78_new_partitions_are_found_and_read_from_their_beginning(
    broker: Broker, topic: str, produce: Callable[..., None]
) -> None:
    reader = stream(broker, topic)
    start = reader.initialOffset()
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    admin.create_partitions([NewPartitions(topic, 3)])[topic].result(60)
    produce(topic, 2, b"new")
    ((begin, end),) = micro_batches(reader, start)
    assert end[topic] == {"0": 0, "1": 0, "2": 1}
    assert values(reader, reader.partitions(begin, end)) == [b"new"]


def test_f78_new_topics_that_match_a_pattern_are_found(broker: Broker, produce: Callable[..., None]) -> None:
    prefix = f"p{next(_numbers)}"
    broker.create_topic(f"{prefix}.one", 1)
    reader = stream(broker, subscribePattern=f"{prefix}\\..*")
    start = reader.initialOffset()
    broker.create_topic(f"{prefix}.two", 1)
    produce(f"{prefix}.two", 0, b"new")
    ((begin, end),) = micro_batches(reader, start)
    assert end[f"{prefix}.two"] == {"0": 1}
    assert values(reader, reader.partitions(begin, end)) == [b"new"]


# Spark 4.1


def without_limits(broker: Broker, topic: str | None = None, **options: Any) -> WithoutLimits:
    return WithoutLimits(stream(broker, topic, **options))


def test_f78_spark_4_1_asks_for_all_there_is(broker: Broker, topic: str, produce: Callable[..., None]) -> None:
    reader = without_limits(broker, topic, startingOffsets="earliest")
    start = reader.initialOffset()
    assert reader.latestOffset() == start
    produce(topic, 0, b"a", b"b")
    produce(topic, 1, b"c")
    end = reader.latestOffset()
    assert values(reader.reader, list(reader.partitions(start, end))) == [b"a", b"b", b"c"]
    assert reader.latestOffset() == end
    delete_records(broker, topic, 0, 2)
    with pytest.raises(DataLost, match=f"offsets 0 to 1 of {topic}-0 are gone"):
        reader.partitions(start, end)
    broker.delete_topic(topic)
    with pytest.raises(DataLost, match=f"{topic}-0 was deleted"):
        reader.partitions(end, reader.latestOffset())


def test_f78_spark_4_1_reads_a_stretch_to_its_end(broker: Broker, topic: str, produce: Callable[..., None]) -> None:
    """Also partitions that were added since: nothing of them is in the stretch. A query that starts again asks for the latest
    offset first."""
    starting, until = json.dumps({topic: {"0": 1, "1": 0}}), json.dumps({topic: {"0": 3, "1": 0}})
    reader = without_limits(broker, topic, startingOffsets=starting, untilOffsets=until)
    produce(topic, 0, *(b"%d" % number for number in range(5)))
    produce(topic, 1, b"late")
    start = reader.initialOffset()
    end = reader.latestOffset()
    assert values(reader.reader, list(reader.partitions(start, end))) == [b"1", b"2"]
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    admin.create_partitions([NewPartitions(topic, 3)])[topic].result(60)
    produce(topic, 2, b"new")
    again = without_limits(broker, topic, startingOffsets=starting, untilOffsets=until)
    after = again.latestOffset()
    assert again.partitions(end, end) == []
    assert again.partitions(end, after) == []


def test_f80_spark_4_1_commits_the_last_batch_when_spark_asks_again(
    broker: Broker, topic: str, produce: Callable[..., None]
) -> None:
    reader = without_limits(broker, topic, startingOffsets="earliest", kafka_group_id=f"g-{topic}")
    start = reader.initialOffset()
    produce(topic, 0, b"a", b"b")
    reader.partitions(start, reader.latestOffset())
    with Client(plain_options(broker.bootstrap_servers)) as client:
        assert not committed_offsets(client, f"g-{topic}")
        reader.latestOffset()
        assert committed_offsets(client, f"g-{topic}")[TopicPartition(topic, 0)].offset == 2


@pytest.mark.parametrize("option", ["maxOffsetsPerTrigger", "minOffsetsPerTrigger"])
def test_limits_are_refused_on_spark_4_1(option: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(read_limits, "ARE_KNOWN", False)
    made = OttlaSource({"kafka.bootstrap.servers": "127.0.0.1:9", "subscribe": "t", option: "5"})
    with pytest.raises(InvalidOption, match=f"option {option}: '5' is not possible, it needs Spark 4.2 or newer"):
        made.streamReader(columns_of(made))


# F80: the group


def test_f80_finished_batches_are_committed_to_the_group(broker: Broker, topic: str, produce: Callable[..., None]) -> None:
    group = f"g-{topic}"
    reader = stream(broker, topic, startingOffsets="earliest", kafka_group_id=group)
    start = reader.initialOffset()
    produce(topic, 0, b"a", b"b")

    def committed() -> dict[int, int]:
        with Client(plain_options(broker.bootstrap_servers)) as client:
            return {where.partition: entry.offset for where, entry in committed_offsets(client, group).items()}

    end = reader.latestOffset(start, ALL)
    assert committed() == {0: 0, 1: 0}
    reader.commit(end)
    assert committed() == {0: 2, 1: 0}
    produce(topic, 1, b"c")
    last = reader.latestOffset(end, ALL)
    assert committed() == {0: 2, 1: 0}
    assert reader.latestOffset(last, ALL) == last, "Spark asks once more, and by that says that the batch is done"
    assert committed() == {0: 2, 1: 1}


def test_f80_a_group_that_cannot_be_committed_to_stops_no_query(
    broker: Broker, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    from confluent_kafka import Consumer

    member = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": f"g-{topic}"})
    joined: list[Any] = []
    member.subscribe([topic], on_assign=lambda _, partitions: joined.extend(partitions))
    while not joined:
        member.poll(0.1)
    reader = stream(broker, topic, kafka_group_id=f"g-{topic}")
    start = reader.initialOffset()
    with caplog.at_level(logging.WARNING, "ottla.source"):
        assert reader.latestOffset(start, ALL) == start
        reader.commit(start)
    assert caplog.text.count(f"could not be committed to group g-{topic}") == 1
    member.close()


# Lost data


def delete_records(broker: Broker, topic: str, partition: int, before: int) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    for future in admin.delete_records([ConfluentPartition(topic, partition, before)]).values():
        future.result(60)


def test_f78_records_removed_before_they_were_read(
    broker: Broker, topic: str, produce: Callable[..., None], caplog: pytest.LogCaptureFixture
) -> None:
    produce(topic, 0, *(b"%d" % number for number in range(10)))
    reader = stream(broker, topic, startingOffsets="earliest")
    start = reader.initialOffset()
    end = reader.latestOffset(start, ALL)
    planned = reader.partitions(start, end)
    delete_records(broker, topic, 0, 7)
    with pytest.raises(DataLost, match=f"offsets 0 to 6 of {topic}-0 are gone: its log now starts at 7"):
        reader.partitions(start, end)
    with pytest.raises(DataLost, match=f"offsets 0 to 6 of {topic}-0 are gone"):
        rows(reader, planned)
    lenient = stream(broker, topic, startingOffsets="earliest", failOnDataLoss="false")
    with caplog.at_level(logging.WARNING, "ottla.source"):
        assert values(lenient, lenient.partitions(start, end)) == [b"7", b"8", b"9"]
        assert f"offsets 0 to 6 of {topic}-0" in caplog.text
        assert values(lenient, planned) == [b"7", b"8", b"9"]


def test_f78_a_topic_deleted_and_made_again(broker: Broker, topic: str, produce: Callable[..., None]) -> None:
    produce(topic, 0, b"old", b"older")
    reader = stream(broker, topic, startingOffsets="earliest")
    start = reader.initialOffset()
    end = reader.latestOffset(start, ALL)
    planned = reader.partitions(start, end)
    broker.delete_topic(topic)
    with pytest.raises(DataLost, match=f"{topic}-0 was deleted"):
        reader.latestOffset(end, ALL)
    broker.create_topic(topic, 2)
    # More than before: only the topic's id tells.
    produce(topic, 0, b"new", b"newer", b"newest")
    with pytest.raises(DataLost, match=f"topic {topic} was deleted and recreated.*the query has read partition 0 up to offset 2"):
        reader.latestOffset(end, ALL)
    with pytest.raises(DataLost, match=f"{topic}-0 was deleted before the query read its offsets 0 to 1"):
        rows(reader, planned)
    lenient = stream(broker, topic, failOnDataLoss="false")
    ((begin, after),) = micro_batches(lenient, end)
    assert values(lenient, lenient.partitions(begin, after)) == [b"new", b"newer", b"newest"]


def test_f78_a_topic_that_is_shorter_than_what_was_read(broker: Broker, topic: str, produce: Callable[..., None]) -> None:
    produce(topic, 0, b"only")
    start = {topic: {"0": 5, "1": 0}}  # without an id, as a cluster without ids would have left it
    with pytest.raises(DataLost, match=f"{topic}-0 ends at offset 1, before offset 5"):
        stream(broker, topic).latestOffset(start, ALL)
    lenient = stream(broker, topic, failOnDataLoss="false")
    ((begin, end),) = micro_batches(lenient, start)
    assert values(lenient, lenient.partitions(begin, end)) == [b"only"]


def test_f78_a_deleted_topic_is_left_out_if_that_is_wanted(broker: Broker, topic: str) -> None:
    other = f"{topic}-other"
    broker.create_topic(other, 1)
    reader = stream(broker, f"{topic},{other}", failOnDataLoss="false")
    start = reader.initialOffset()
    broker.delete_topic(other)
    end = reader.latestOffset(start, ALL)
    assert topic in end
    assert other not in end


# The broker


def test_a_broker_that_is_away_is_named() -> None:
    with pytest.raises(BrokerAway, match=r"127\.0\.0\.1:9.*refused"):
        OttlaSource(
            {"kafka.bootstrap.servers": "127.0.0.1:9", "subscribe": "t", "kafka.default.api.timeout.ms": "300"}
        ).streamReader(StructType()).initialOffset()


def test_a_stream_lives_through_a_restart_of_the_broker(tmp_path: Any) -> None:
    with Broker(data_dir=tmp_path) as broker:
        broker.create_topic("t", 1)
        reader = stream(broker, "t", startingOffsets="earliest", kafka_group_id="g")
        start = reader.initialOffset()
        broker.restart()
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
        producer.produce("t", b"after")
        assert producer.flush(60) == 0
        end = reader.latestOffset(start, ALL)
        planned = reader.partitions(start, end)
        broker.kill()
        broker.start()
        assert values(reader, planned) == [b"after"]
        reader.commit(end)
        reader.stop()


def test_arrow_types_are_those_spark_expects(broker: Broker, topic: str, produce: Callable[..., None]) -> None:
    from ottla.pipelines.arrow_types import arrow_schema

    produce(topic, 0, b"a")
    made = source(broker, topic, includeHeaders="true")
    reader = made.reader(columns_of(made))
    (found,) = [part for partition in reader.partitions() for part in reader.read(partition)]
    assert found.schema.equals(arrow_schema(columns_of(made)))
    assert found.schema.field("timestamp").type == pa.timestamp("us", tz="UTC")
    assert TopicPartition(topic, 0) in {TopicPartition(row["topic"], row["partition"]) for row in found.to_pylist()}
