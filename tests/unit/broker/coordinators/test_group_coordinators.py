"""Parts of the group coordinators' host that need no broker."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from ottla.broker.coordinators.group_coordinators import uuid_text
from ottla.broker.coordinators.group_shards import group_config
from ottla.broker.coordinators.reply import Reply
from ottla.broker.coordinators.shard_loader import ShardLoader
from ottla.broker.coordinators.shard_writer import batches
from ottla.cluster.settings import BrokerSettings
from ottla.coordinator.group.group import GroupConfig
from ottla.coordinator.group.offset_store import tombstone
from ottla.coordinator.shard import CoordinatorRecord, Decision, positive_hash
from ottla.errors import ErrorCode, KafkaError
from ottla.records.batch import scan_batches
from ottla.records.control import ABORT, COMMIT
from ottla.records.own import own_marker
from ottla.records.record import build_batch


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("", 0),
        ("g", 103),
        ("Aa", 2112),
        ("BB", 2112),
        ("hello", 99162322),
        ("polygenelubricants", 0),  # hashCode is the smallest int, which has no absolute value
        ("zzzzzz", 685785664),  # hashCode is -685785664
        ("😀", 1772899),  # two units of UTF-16
    ],
)
def test_f37_the_hash_is_javas(text: str, code: int) -> None:
    assert positive_hash(text) == code


def test_a_uuid_is_of_version_4_and_in_javas_form() -> None:
    assert uuid_text(bytes(16)) == "00000000-0000-4000-8000-000000000000"
    assert uuid_text(b"\xff" * 16) == "ffffffff-ffff-4fff-bfff-ffffffffffff"


def test_the_defaults_are_kafkas() -> None:
    config = group_config(BrokerSettings.parse({}))
    assert config == GroupConfig(rebalance_protocols=frozenset({"classic", "consumer", "streams"}))


def test_a_reply_is_given_once() -> None:
    reply: Reply[int] = Reply(lambda value: value + 1)
    assert not reply.done
    reply.answer(1)
    reply.answer(5)
    reply.fail(KafkaError(ErrorCode.NOT_COORDINATOR))
    assert reply.result() == 2
    failed: Reply[int] = Reply()
    failed.fail(KafkaError(ErrorCode.NOT_COORDINATOR))
    failed.answer(1)
    with pytest.raises(KafkaError):
        failed.result()


def test_a_reply_nobody_waits_for_any_more_is_dropped() -> None:
    async def main() -> None:
        reply: Reply[int] = Reply()
        waiting: dict[Reply[int], None] = {}
        future = reply.wait_in(waiting, asyncio.get_running_loop())
        future.cancel()
        assert reply.done
        assert list(waiting) == [reply]
        reply.answer(1)
        reply.fail(KafkaError(ErrorCode.NOT_COORDINATOR))
        assert future.cancelled()
        assert not waiting

    asyncio.run(main())


def test_records_of_a_transaction_wait_in_the_shard_for_its_marker() -> None:
    def batch(value: bytes, producer: int) -> bytes:
        return build_batch([(b"k", value, (), 1)], producer_id=producer, producer_epoch=0, base_sequence=0, transactional=True)

    def marker(kind: int, producer: int) -> bytes:
        return bytes(own_marker(kind == COMMIT, 0, producer, 0, 1).buffer)

    data = b"".join(
        [batch(b"1", 7), batch(b"2", 8), build_batch([(b"k", b"3", (), 1)]), marker(COMMIT, 8), marker(ABORT, 7), batch(b"4", 9)]
    )
    heard: list[tuple[object, ...]] = []

    class Shard:
        def replay(self, key: bytes, value: bytes | None, producer_id: int = -1) -> None:
            heard.append((producer_id, value))

        def replay_end_transaction_marker(self, producer_id: int, *, commit: bool) -> None:
            heard.append((producer_id, commit))

    loader: ShardLoader[Any] = ShardLoader.__new__(ShardLoader)
    for each in scan_batches(data)[0]:
        loader._replay_batch(Shard(), data, each)
    assert heard == [(7, b"1"), (8, b"2"), (-1, b"3"), (8, True), (7, False), (9, b"4")]


def test_only_many_tombstones_are_cut_into_batches() -> None:
    records = [tombstone("g", "t", number) for number in range(1000)]
    cut = list(batches(Decision(records, pure=True), 4000))
    assert [record for batch in cut for record in batch] == records
    assert len(cut) > 5
    assert all(sum(len(record.key) + 32 for record in batch) <= 4000 for batch in cut)
    assert list(batches(Decision(records), 4000)) == [records], "these belong together"
    mixed = [*records, CoordinatorRecord(b"k", b"v")]
    assert list(batches(Decision(mixed, pure=True), 4000)) == [mixed]
