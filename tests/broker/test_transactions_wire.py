"""Transactions on a real broker, as clients of both generations speak (T03-T11, T14)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ottla.coordinator.txn.transaction_metadata import State
from ottla.errors import ErrorCode
from ottla.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from ottla.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from ottla.protocol.messages.api_versions import ApiVersionsRequest
from ottla.protocol.messages.delete_topics import DeleteTopicsRequest
from ottla.protocol.messages.describe_transactions import DescribeTransactionsRequest
from ottla.protocol.messages.end_txn import EndTxnRequest
from ottla.protocol.messages.find_coordinator import FindCoordinatorRequest
from ottla.protocol.messages.init_producer_id import InitProducerIdRequest
from ottla.protocol.messages.list_transactions import ListTransactionsRequest
from ottla.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopics
from ottla.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from ottla.records.batch import scan_batches
from ottla.records.record import build_batch, read_records

Producer = tuple[int, int]

NONE = ErrorCode.NONE
FENCED = ErrorCode.PRODUCER_FENCED
OLD_FENCED = ErrorCode.INVALID_PRODUCER_EPOCH
INVALID_STATE = ErrorCode.INVALID_TXN_STATE


class Client:
    """One connection that says what a transactional producer says, and hears codes."""

    def __init__(self, stage: Any, connection: Any, name: str = "tx") -> None:
        self.stage = stage
        self.connection = connection
        self.name = name
        self.sequences: dict[tuple[Producer, int], int] = {}

    @classmethod
    async def open(cls, stage: Any, name: str = "tx") -> Client:
        client = cls(stage, await stage.connect(), name)
        found = await client.connection.call("find_coordinator", 4, FindCoordinatorRequest(key_type=1, coordinator_keys=[name]))
        assert [each.error_code for each in found.coordinators] == [0]
        return client

    async def init(self, producer: Producer = (-1, -1), *, version: int = 5, timeout_ms: int = 60_000) -> Any:
        request = InitProducerIdRequest(
            transactional_id=self.name,
            transaction_timeout_ms=timeout_ms,
            producer_id=producer[0] if version >= 3 else -1,
            producer_epoch=producer[1] if version >= 3 else -1,
        )
        answer = await self.connection.call("init_producer_id", version, request)
        return ErrorCode(answer.error_code) if answer.error_code else (answer.producer_id, answer.producer_epoch)

    async def add(self, producer: Producer, *partitions: int, version: int = 3, topic: str = "t") -> list[int]:
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.name,
            v3_and_below_producer_id=producer[0],
            v3_and_below_producer_epoch=producer[1],
            v3_and_below_topics=[AddPartitionsToTxnTopic(name=topic, partitions=list(partitions))],
        )
        answer = await self.connection.call("add_partitions_to_txn", version, request)
        return [each.partition_error_code for each in answer.results_by_topic_v3_and_below[0].results_by_partition]

    async def produce(
        self, producer: Producer, *values: bytes, partition: int = 0, version: int = 9, sequence: int | None = None
    ) -> int:
        at = self.sequences.get((producer, partition), 0) if sequence is None else sequence
        batch = build_batch(
            [(b"k", value, (), self.stage.broker.world.clock.now_ms()) for value in values],
            producer_id=producer[0],
            producer_epoch=producer[1],
            base_sequence=at,
            transactional=True,
        )
        request = self.stage.produce_request(batch, partition=partition)
        request.transactional_id = self.name
        if version >= 13:
            request.topic_data[0].topic_id = self.stage.broker.image.topics[request.topic_data[0].name].topic_id
            request.topic_data[0].name = ""
        answer = await self.connection.call("produce", version, request)
        code: int = answer.responses[0].partition_responses[0].error_code
        if not code:
            self.sequences[producer, partition] = at + len(values)
        return code

    async def end(self, producer: Producer, *, commit: bool = True, version: int = 4) -> Any:
        request = EndTxnRequest(transactional_id=self.name, producer_id=producer[0], producer_epoch=producer[1], committed=commit)
        answer = await self.connection.call("end_txn", version, request)
        if answer.error_code or version < 5:
            return ErrorCode(answer.error_code)
        return (answer.producer_id, answer.producer_epoch)

    async def add_offsets(self, producer: Producer, *, group: str = "g", version: int = 4) -> int:
        request = AddOffsetsToTxnRequest(
            transactional_id=self.name, producer_id=producer[0], producer_epoch=producer[1], group_id=group
        )
        return ErrorCode((await self.connection.call("add_offsets_to_txn", version, request)).error_code)

    async def commit_offset(
        self, producer: Producer, offset: int, *, group: str = "g", version: int = 4, partition: int = 0, **fields: Any
    ) -> int:
        request = TxnOffsetCommitRequest(
            transactional_id=self.name,
            group_id=group,
            producer_id=producer[0],
            producer_epoch=producer[1],
            topics=[
                TxnOffsetCommitRequestTopic(
                    name="t",
                    partitions=[
                        TxnOffsetCommitRequestPartition(
                            partition_index=partition, committed_offset=offset, committed_metadata="note"
                        )
                    ],
                )
            ],
            **fields,
        )
        answer = await self.connection.call("txn_offset_commit", version, request)
        return ErrorCode(answer.topics[0].partitions[0].error_code)

    async def committed(self, *, group: str = "g", stable: bool = True) -> int:
        """The group's offset, or the code of the refusal."""
        asked = OffsetFetchRequestGroup(group_id=group, topics=[OffsetFetchRequestTopics(name="t", partition_indexes=[0])])
        request = OffsetFetchRequest(groups=[asked], require_stable=stable)
        answer = await self.connection.call("offset_fetch", 8, request)
        found = answer.groups[0].topics[0].partitions[0]
        return ErrorCode(found.error_code) if found.error_code else found.committed_offset

    async def values(self, *, committed: bool = True, partition: int = 0, wait_ms: int = 0, offset: int = 0) -> list[bytes]:
        """What a consumer gets to see: control batches and aborted ones are passed over, as clients do it."""
        data = await self.stage.fetch(
            self.connection, offset, partition=partition, isolation_level=int(committed), max_wait_ms=wait_ms
        )
        assert data.error_code == 0
        batches, _ = scan_batches(data.records)
        aborted = sorted((each.first_offset, each.producer_id) for each in data.aborted_transactions or ())
        seen: list[bytes] = []
        ignored: set[int] = set()
        for batch in batches:
            while aborted and aborted[0][0] <= batch.last_offset:
                ignored.add(aborted.pop(0)[1])
            if batch.is_control:
                ignored.discard(batch.producer_id)
            elif not (committed and batch.is_transactional and batch.producer_id in ignored):
                seen += [record.value for record in read_records(data.records, batch) if record.value is not None]
        return seen

    async def describe(self) -> Any:
        request = DescribeTransactionsRequest(transactional_ids=[self.name])
        return (await self.connection.call("describe_transactions", 0, request)).transaction_states[0]


# The topic and the feature


def test_the_topic_of_transactions_is_made_on_first_use(play: Any) -> None:
    async def case(stage: Any) -> None:
        assert "__transaction_state" not in stage.broker.image.topics
        await Client.open(stage)
        topic = stage.broker.image.topics["__transaction_state"]
        assert len(topic.partitions) == 50
        assert topic.config["cleanup.policy"] == "compact"
        assert topic.config["min.insync.replicas"] == "1", "never more than there are replicas"
        assert topic.internal

    play(case)


def test_transaction_version_2_is_finalised(play: Any) -> None:
    async def case(stage: Any) -> None:
        connection = await stage.connect()
        request = ApiVersionsRequest(client_software_name="test", client_software_version="1")
        for version in (3, 4):
            answer = await connection.call("api_versions", version, request)
            assert [(each.name, each.max_version_level) for each in answer.finalized_features] == [("transaction.version", 2)]
            assert answer.finalized_features_epoch >= 0
            assert [each.min_version for each in answer.supported_features] == ([0] if version >= 4 else [])

    play(case)


# Both generations, from end to end


@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize("end_version", range(5))
def test_a_transaction_before_kip_890(play: Any, end_version: int, commit: bool) -> None:
    async def case(stage: Any) -> None:
        await stage.topic(partitions=2)
        client = await Client.open(stage)
        producer = await client.init(version=min(end_version, 5))
        assert await client.add(producer, 0, 1, version=min(end_version, 3)) == [0, 0]
        for partition in (0, 1):
            assert await client.produce(producer, b"a", b"b", partition=partition) == 0
        assert await client.values(committed=False) == [b"a", b"b"]
        assert await client.values() == []
        assert await client.end(producer, commit=commit, version=end_version) == NONE
        for partition in (0, 1):
            assert await client.values(partition=partition) == ([b"a", b"b"] if commit else [])
        assert (await client.describe()).transaction_state == ("CompleteCommit" if commit else "CompleteAbort")
        # The next one.
        assert await client.add(producer, 0) == [0]
        assert await client.produce(producer, b"c") == 0
        assert await client.end(producer) == NONE
        assert (await client.values())[-1:] == [b"c"]

    play(case)


@pytest.mark.parametrize("produce_version", [12, 13])
def test_a_transaction_of_version_2_adds_partitions_by_writing(play: Any, produce_version: int) -> None:
    async def case(stage: Any) -> None:
        await stage.topic(partitions=2)
        client = await Client.open(stage)
        producer = await client.init()
        seen = []
        for number in range(5):
            assert await client.produce(producer, b"%d" % number, version=produce_version) == 0
            assert (await client.describe()).transaction_state == "Ongoing"
            commit = number % 2 == 0
            following = await client.end(producer, commit=commit, version=5)
            assert following == (producer[0], producer[1] + 1), "each transaction has an epoch of its own"
            producer = following
            if commit:
                seen.append(b"%d" % number)
        assert await client.values() == seen

    play(case)


# T03, T04: fencing


@pytest.mark.parametrize("version", range(6))
def test_t03_the_successor_aborts_and_fences(play: Any, version: int) -> None:
    async def case(stage: Any) -> None:
        await stage.topic()
        client = await Client.open(stage)
        old = await client.init(version=version)
        await client.add(old, 0)
        await client.produce(old, b"never seen")
        successor = await Client.open(stage)
        assert await successor.init(version=version) == ErrorCode.CONCURRENT_TRANSACTIONS
        assert await successor.init(version=version) == (old[0], old[1] + 2)
        assert await client.add(old, 0, version=3) == [FENCED]
        assert await client.add(old, 0, version=1) == [OLD_FENCED]
        assert await client.add_offsets(old) == FENCED
        assert await client.add_offsets(old, version=1) == OLD_FENCED
        assert await client.end(old) == FENCED
        assert await client.end(old, version=1) == OLD_FENCED
        assert await client.produce(old, b"zombie") == OLD_FENCED
        assert await client.produce(old, b"zombie", version=12) == OLD_FENCED
        if version >= 3:
            assert await client.init(old, version=version) == (FENCED if version >= 4 else OLD_FENCED)
        assert await client.values() == []
        assert await client.values(committed=False) == [b"never seen"]

    play(case)


def test_t04_kip_360_on_the_wire(play: Any) -> None:
    async def case(stage: Any) -> None:
        client = await Client.open(stage)
        producer = await client.init()
        bumped = (producer[0], producer[1] + 1)
        assert await client.init(producer) == bumped
        assert await client.init(producer) == bumped
        assert await client.init((producer[0], 9)) == FENCED
        assert await client.init((producer[0] + 1, 0)) == FENCED

    play(case)


def test_producer_ids_are_unique_over_restarts(play: Any) -> None:
    given: list[Producer] = []

    async def case(stage: Any) -> None:
        for name in ("a", "b"):
            client = await Client.open(stage, f"{name}{len(given)}")
            given.append(await client.init())

    for _ in range(3):
        play(case)
    assert len({producer_id for producer_id, _ in given}) == 6


# T05: time


@pytest.mark.parametrize("version", [9, 12])
def test_t05_a_transaction_past_its_time_is_aborted(play: Any, version: int) -> None:
    async def case(stage: Any) -> None:
        await stage.topic()
        client = await Client.open(stage)
        transactions = stage.broker.transactions
        transactions.timeouts.timeouts.stop()  # not before there is something to abort
        producer = await client.init(timeout_ms=1)
        if version < 12:
            await client.add(producer, 0)
        assert await client.produce(producer, b"late", version=version) == 0
        transactions.timeouts.timeouts.start()
        # The marker moves the last stable offset, and that wakes the fetch.
        assert await client.values(wait_ms=30_000, offset=0) == []
        assert (await client.describe()).transaction_state == "CompleteAbort"
        assert (await client.describe()).producer_epoch == producer[1] + 1
        assert await client.produce(producer, b"more", version=version) == OLD_FENCED
        if version < 12:
            assert await client.end(producer) == FENCED
        else:
            assert await client.end(producer, version=5) == INVALID_STATE
            assert await client.end(producer, commit=False, version=5) == (producer[0], producer[1] + 1)
        assert await client.init(producer) == (producer[0], producer[1] + 1)

    play(case, transaction_abort_timed_out_transaction_cleanup_interval_ms="10")


def test_t05_a_timeout_beyond_the_limit(play: Any) -> None:
    async def case(stage: Any) -> None:
        client = await Client.open(stage)
        assert await client.init(timeout_ms=5001) == ErrorCode.INVALID_TRANSACTION_TIMEOUT
        assert await client.init(timeout_ms=0) == ErrorCode.INVALID_TRANSACTION_TIMEOUT
        assert isinstance(await client.init(timeout_ms=5000), tuple)

    play(case, transaction_max_timeout_ms="5000")


# T06: the broker goes between decision and markers


@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize("generation", [1, 2])
def test_t06_what_was_decided_is_finished_after_a_restart(play: Any, generation: int, commit: bool) -> None:
    async def decide(stage: Any) -> None:
        await stage.topic(partitions=3)
        client = await Client.open(stage)
        producer = await client.init()
        for partition in (0, 1, 2):
            if generation == 1:
                await client.add(producer, partition)
            assert await client.produce(producer, b"x", partition=partition, version=9 if generation == 1 else 12) == 0
        stage.broker.marker_delivery.deliver = lambda hosted, marker: None
        await client.end(producer, commit=commit, version=4 if generation == 1 else 5)
        assert (await client.describe()).transaction_state == ("PrepareCommit" if commit else "PrepareAbort")
        assert await client.values() == []
        assert await client.init() == ErrorCode.CONCURRENT_TRANSACTIONS

    async def find(stage: Any) -> None:
        client = await Client.open(stage)
        for partition in (0, 1, 2):
            seen = await client.values(partition=partition, wait_ms=30_000)
            assert seen == ([b"x"] if commit else [])
        assert (await client.describe()).transaction_state == ("CompleteCommit" if commit else "CompleteAbort")
        assert isinstance(await client.init(), tuple)

    play(decide)
    play(find)


def test_t06_an_open_transaction_goes_on_after_a_restart(play: Any) -> None:
    given: list[Producer] = []

    async def begin(stage: Any) -> None:
        await stage.topic()
        client = await Client.open(stage)
        given.append(await client.init())
        await client.add(given[0], 0)
        await client.produce(given[0], b"before")

    async def go_on(stage: Any) -> None:
        client = await Client.open(stage)
        assert await client.values() == []
        assert await client.produce(given[0], b"after", sequence=1) == 0
        assert await client.end(given[0]) == NONE
        assert await client.values() == [b"before", b"after"]

    play(begin)
    play(go_on)


# T07: EndTxn


def test_t07_end_txn_again_and_otherwise(play: Any) -> None:
    async def case(stage: Any) -> None:
        await stage.topic()
        client = await Client.open(stage)
        producer = await client.init()
        assert await client.end(producer) == INVALID_STATE
        await client.add(producer, 0)
        assert await client.end((producer[0] + 1, 0)) == ErrorCode.INVALID_PRODUCER_ID_MAPPING
        assert await client.end(producer) == NONE
        assert await client.end(producer) == NONE
        assert await client.end(producer, commit=False) == INVALID_STATE
        stage.broker.marker_delivery.deliver = lambda hosted, marker: None
        await client.add(producer, 0)
        assert await client.end(producer) == NONE
        assert await client.end(producer) == ErrorCode.CONCURRENT_TRANSACTIONS
        assert await client.end(producer, commit=False) == ErrorCode.CONCURRENT_TRANSACTIONS
        assert await client.add(producer, 0) == [ErrorCode.CONCURRENT_TRANSACTIONS]
        # A write of the first generation is one to be sent again; of the second it says so, after a moment's patience.
        assert await client.produce(producer, b"x") == ErrorCode.NOT_ENOUGH_REPLICAS
        assert await client.produce(producer, b"x", version=12) == ErrorCode.CONCURRENT_TRANSACTIONS

    play(case)


def test_nobody_has_initialised_the_id(play: Any) -> None:
    async def case(stage: Any) -> None:
        await stage.topic()
        client = await Client.open(stage)
        unknown = ErrorCode.INVALID_PRODUCER_ID_MAPPING
        assert await client.end((5, 0)) == unknown
        assert await client.add((5, 0), 0) == [unknown]
        assert await client.produce((5, 0), b"x") == unknown
        assert await client.commit_offset((5, 0), 1, version=5) in (unknown, ErrorCode.NOT_COORDINATOR)

    play(case)


# T08, T09: offsets in transactions


async def _with_group(stage: Any) -> Client:
    await stage.topic()
    client = await Client.open(stage)
    await client.connection.call("find_coordinator", 4, FindCoordinatorRequest(key_type=0, coordinator_keys=["g"]))
    return client


@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize("version", range(6))
def test_t09_offsets_count_with_the_transaction(play: Any, version: int, commit: bool) -> None:
    async def case(stage: Any) -> None:
        client = await _with_group(stage)
        producer = await client.init()
        if version < 5:
            assert await client.add_offsets(producer, version=min(version, 4)) == NONE
        assert await client.commit_offset(producer, 7, version=version) == NONE
        assert await client.committed(stable=False) == -1
        assert await client.committed() == ErrorCode.UNSTABLE_OFFSET_COMMIT
        ended = await client.end(producer, commit=commit, version=5 if version == 5 else 4)
        assert ended == ((producer[0], producer[1] + 1) if version == 5 else NONE)
        assert await client.committed() == (7 if commit else -1)

    play(case)


@pytest.mark.parametrize("commit", [True, False])
def test_t09_pending_offsets_survive_a_restart(play: Any, commit: bool) -> None:
    given: list[Producer] = []

    async def begin(stage: Any) -> None:
        client = await _with_group(stage)
        given.append(await client.init())
        await client.add_offsets(given[0])
        assert await client.commit_offset(given[0], 7) == NONE

    async def end(stage: Any) -> None:
        client = await Client.open(stage)
        while (found := await client.committed()) == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            pass
        assert found == ErrorCode.UNSTABLE_OFFSET_COMMIT
        assert await client.end(given[0], commit=commit) == NONE
        assert await client.committed() == (7 if commit else -1)

    async def look(stage: Any) -> None:
        client = await Client.open(stage)
        assert await client.committed() == (7 if commit else -1)

    play(begin)
    play(end)
    play(look)


def test_t08_stale_members_and_partitions_outside_the_transaction(play: Any) -> None:
    async def case(stage: Any) -> None:
        client = await _with_group(stage)
        producer = await client.init()
        assert await client.commit_offset(producer, 7, version=3) == INVALID_STATE, "not added (T10)"
        assert await client.commit_offset(producer, 7, version=4) == ErrorCode.TRANSACTION_ABORTABLE
        await client.add_offsets(producer)
        assert await client.commit_offset(producer, 7, generation_id=4, member_id="m") == ErrorCode.ILLEGAL_GENERATION
        assert await client.commit_offset(producer, 7, partition=5) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert await client.commit_offset((producer[0], 9), 7) == OLD_FENCED
        assert await client.commit_offset(producer, 7) == NONE
        assert await client.commit_offset(producer, 8, generation_id=4, member_id="m") == ErrorCode.UNKNOWN_MEMBER_ID
        assert await client.end(producer) == NONE
        assert await client.committed() == 7

    play(case)


# T10, T11, T14


def test_t10_a_write_outside_the_transaction_is_refused_and_nothing_hangs(play: Any) -> None:
    async def case(stage: Any) -> None:
        await stage.topic(partitions=2)
        client = await Client.open(stage)
        producer = await client.init()
        assert await client.produce(producer, b"x", version=9) == INVALID_STATE
        assert await client.produce(producer, b"x", version=11) == ErrorCode.TRANSACTION_ABORTABLE
        await client.add(producer, 1)
        assert await client.produce(producer, b"x", version=9) == INVALID_STATE
        assert await client.values(committed=False) == []
        await stage.produce(client.connection, stage.batch(b"plain"))
        assert await client.values() == [b"plain"], "nobody's transaction holds the readers back"

    play(case)


def test_t10_a_write_refused_for_its_epoch_does_not_join_the_transaction(play: Any) -> None:
    """Somebody wrote plainly with the same id and a later epoch: the marker would be refused too, and the end never come."""

    async def case(stage: Any) -> None:
        await stage.topic(partitions=2)
        client = await Client.open(stage)
        producer_id, epoch = await client.init()
        now_ms = stage.broker.world.clock.now_ms()
        plain = build_batch([(b"k", b"v", (), now_ms)], producer_id=producer_id, producer_epoch=epoch + 5, base_sequence=0)
        answer = await client.connection.call("produce", 12, stage.produce_request(plain, partition=0))
        assert answer.responses[0].partition_responses[0].error_code == 0
        assert await client.produce((producer_id, epoch), b"x", partition=1, version=12) == 0
        assert await client.produce((producer_id, epoch), b"x", partition=0, version=12) == OLD_FENCED
        assert [each.partitions for each in (await client.describe()).topics] == [[1]]
        bumped = await client.end((producer_id, epoch), commit=False, version=5)
        assert await client.produce(bumped, b"y", partition=1, version=12) == 0, "the transaction before is over"

    play(case)


def test_t10_verification_can_be_switched_off(play: Any) -> None:
    async def case(stage: Any) -> None:
        await stage.topic()
        client = await Client.open(stage)
        producer = await client.init()
        assert await client.produce(producer, b"x", version=9) == 0

    play(case, transaction_partition_verification_enable="false")


def test_t11_what_is_late_from_an_earlier_transaction_changes_nothing(play: Any) -> None:
    async def case(stage: Any) -> None:
        await stage.topic()
        client = await Client.open(stage)
        first = await client.init()
        assert await client.produce(first, b"1", version=12) == 0
        second = await client.end(first, version=5)
        assert await client.produce(second, b"2", version=12) == 0
        assert await client.produce(first, b"late", version=12, sequence=1) == OLD_FENCED
        for commit in (True, False):
            assert await client.end(first, commit=commit, version=5) == FENCED
        third = await client.end(second, version=5)
        assert third == (second[0], second[1] + 1)
        assert await client.produce(second, b"late", version=12, sequence=1) == OLD_FENCED
        assert await client.values() == [b"1", b"2"]
        assert await client.end(second, version=5) == third, "the same end again"

    play(case)


def test_t11_the_next_transaction_waits_for_the_marker_of_the_one_before(play: Any) -> None:
    """Its records would be taken for the former's, and end with it."""

    async def case(stage: Any) -> None:
        await stage.topic()
        client = await Client.open(stage)
        first = await client.init()
        assert await client.produce(first, b"1", version=12) == 0
        delivery = stage.broker.marker_delivery
        write, owed = delivery.deliver, []
        delivery.deliver = lambda hosted, marker: owed.append((hosted, marker))
        second = await client.end(first, commit=False, version=5)
        assert await client.produce(second, b"2", version=12) == ErrorCode.CONCURRENT_TRANSACTIONS
        delivery.deliver = write
        for hosted, marker in owed:
            write(hosted, marker)
        assert await client.produce(second, b"2", version=12) == 0
        await client.end(second, version=5)
        assert await client.values() == [b"2"]

    play(case)


def test_t14_a_commit_without_records(play: Any) -> None:
    async def case(stage: Any) -> None:
        await stage.topic()
        client = await Client.open(stage)
        producer = await client.init()
        await client.add(producer, 0)
        assert await client.end(producer) == NONE
        assert await client.values() == []
        assert await client.produce(producer, b"x", version=9) == INVALID_STATE
        # A client of version 2 aborts what it never began.
        assert await client.end(producer, commit=False, version=5) == (producer[0], producer[1] + 1)
        assert stage.broker.transactions.shards.find("tx")[1].transactions["tx"].state == State.COMPLETE_ABORT

    play(case)


# AddPartitionsToTxn, as brokers send it


def test_several_transactions_in_one_request(play: Any) -> None:
    async def case(stage: Any) -> None:
        await stage.topic(partitions=2)
        clients = {name: await Client.open(stage, name) for name in ("a", "b", "c")}
        producers = {name: await client.init() for name, client in clients.items()}
        await clients["b"].add(producers["b"], 0)

        def asked(name: str, *partitions: int, verify_only: bool = False, epoch: int = 0) -> AddPartitionsToTxnTransaction:
            return AddPartitionsToTxnTransaction(
                transactional_id=name,
                producer_id=producers.get(name, (1, 0))[0],
                producer_epoch=epoch,
                verify_only=verify_only,
                topics=[AddPartitionsToTxnTopic(name="t", partitions=list(partitions))],
            )

        async def ask(*transactions: AddPartitionsToTxnTransaction, version: int = 5) -> list[list[int]]:
            request = AddPartitionsToTxnRequest(transactions=list(transactions))
            answer = await clients["a"].connection.call("add_partitions_to_txn", version, request)
            assert answer.error_code == 0
            assert [each.transactional_id for each in answer.results_by_transaction] == [
                each.transactional_id for each in transactions
            ]
            return [
                [each.partition_error_code for each in result.topic_results[0].results_by_partition]
                for result in answer.results_by_transaction
            ]

        for version in (4, 5):
            assert await ask(asked("a", 0, 1), asked("b", 0, 1, verify_only=True), asked("nobody", 0), version=version) == [
                [0, 0],
                [0, ErrorCode.TRANSACTION_ABORTABLE],
                [ErrorCode.INVALID_PRODUCER_ID_MAPPING],
            ]
        assert await ask(asked("a", 0, 7)) == [[ErrorCode.OPERATION_NOT_ATTEMPTED, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]]
        assert await ask(asked("c", 0, epoch=3)) == [[FENCED]]
        assert (await clients["c"].describe()).transaction_state == "Empty"

    play(case)


def test_a_topic_deleted_in_the_middle_does_not_hold_the_end_back(play: Any) -> None:
    async def case(stage: Any) -> None:
        await stage.topic(partitions=2)
        await stage.topic("gone")
        client = await Client.open(stage)
        producer = await client.init()
        await client.add(producer, 0)
        assert await client.add(producer, 0, topic="gone") == [0]
        deleted = await client.connection.call("delete_topics", 1, DeleteTopicsRequest(topic_names=["gone"], timeout_ms=10_000))
        assert deleted.responses[0].error_code == 0
        assert await client.produce(producer, b"x") == 0
        assert await client.end(producer) == NONE
        assert (await client.describe()).transaction_state == "CompleteCommit"
        assert await client.values() == [b"x"]

    play(case)


# Administration


def test_list_and_describe(play: Any) -> None:
    async def case(stage: Any) -> None:
        await stage.topic(partitions=2)
        open_one, idle = await Client.open(stage, "open-1"), await Client.open(stage, "idle-1")
        producer, other = await open_one.init(timeout_ms=1234), await idle.init()
        await open_one.add(producer, 1)
        found = await open_one.describe()
        assert (found.error_code, found.transaction_state, found.transaction_timeout_ms) == (0, "Ongoing", 1234)
        assert (found.producer_id, found.producer_epoch) == producer
        assert [(topic.topic, topic.partitions) for topic in found.topics] == [("t", [1])]
        assert (await Client(stage, idle.connection, "nobody").describe()).error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND

        async def names(version: int = 2, **filters: Any) -> list[str]:
            answer = await idle.connection.call("list_transactions", version, ListTransactionsRequest(**filters))
            assert answer.error_code == 0
            return sorted(each.transactional_id for each in answer.transaction_states)

        assert await names(0) == ["idle-1", "open-1"]
        assert await names(1, state_filters=["Ongoing"]) == ["open-1"]
        assert await names(1, state_filters=["Nonsense"]) == []
        assert await names(1, producer_id_filters=[other[0]]) == ["idle-1"]
        assert await names(1, state_filters=["Ongoing"], duration_filter=3_600_000) == []
        assert await names(transactional_id_pattern="idle.*") == ["idle-1"]
        assert await names(transactional_id_pattern="dle") == [], "the whole id"
        unknown = await idle.connection.call("list_transactions", 0, ListTransactionsRequest(state_filters=["Nonsense"]))
        assert unknown.unknown_state_filters == ["Nonsense"]
        broken = await idle.connection.call("list_transactions", 2, ListTransactionsRequest(transactional_id_pattern="("))
        assert broken.error_code == ErrorCode.INVALID_REGULAR_EXPRESSION

    play(case)


def test_ids_nobody_uses_are_forgotten(play: Any) -> None:
    async def case(stage: Any) -> None:
        client = await Client.open(stage)
        producer = await client.init()
        stage.broker.transactions.timeouts.expire_ids()
        assert (await client.describe()).producer_id == producer[0]
        shard = stage.broker.transactions.shards.find("tx")[1]
        clock = stage.broker.world.clock
        later = clock.now_ms() + 10_000_000
        stage.broker.transactions.shards.find("tx")[0].perform(shard.expire_ids(later))
        assert (await client.describe()).error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
        assert (await client.init())[0] != producer[0]

    play(case, transactional_id_expiration_ms="10000000")


def test_a_broker_that_is_stopped_in_the_middle_leaves_nothing_behind(play: Any, tmp_path: Path) -> None:
    async def case(stage: Any) -> None:
        await stage.topic()
        client = await Client.open(stage)
        producer = await client.init()
        await client.add(producer, 0)
        await client.produce(producer, b"x")

    play(case)
    assert (tmp_path / "data" / ".kafka_cleanshutdown").exists()
