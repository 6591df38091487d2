"""R17: the last replica in sync crashes with its machine and loses what it had not flushed.

The worlds leave this case out: it is the one in which acknowledged records are lost without unclean elections. Clusters on
ZooKeeper have no eligible leader replicas (KIP-966), so the replica leads again when it returns, as in Apache Kafka.
"""

from __future__ import annotations

from typing import Any

import pytest

from ottla.errors import ErrorCode
from ottla.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from ottla.records.batch import read_batch_header
from ottla.records.record import read_records
from ottla.sim.models.log_files import stored_batches
from tests.sim.test_cluster_found import Stage, _controller, _replica

EVERYTHING = [b"on the disk", b"both have it", b"one has it"]


class LosesAll:
    """In place of a disk's random numbers: every file and every directory loses all that was not flushed."""

    def random(self) -> float:
        return 0.4

    def randint(self, low: int, high: int) -> int:
        return low


def values(node: Any) -> list[bytes]:
    found = stored_batches(node.disk, _replica(node, "t").log.dir)
    return [
        bytes(record.value or b"") for batch in found for record in read_records(batch.data, read_batch_header(batch.data, 0))
    ]


async def last_one_crashes(stage: Any) -> tuple[Any, Any]:
    """The leader, which was the last one in sync and has crashed, and a follower that was away and lacks one record."""
    controller = await _controller(stage)
    leader, follower = (node for node in stage.nodes if node is not controller)
    await stage.create("t", [leader.number, follower.number], flush_ms="3600000")
    await stage.settled()
    await stage.produce(leader, "t", EVERYTHING[0], acks=-1)
    for node in stage.nodes:
        node.disk.flush_all()
    await stage.produce(leader, "t", EVERYTHING[1], acks=-1)
    follower.kill()
    await stage.until(lambda: stage.cluster.rules.state(("t", 0)).isr == (leader.number,), "the leader is alone")
    await stage.produce(leader, "t", EVERYTHING[2], acks=-1)
    stage.cluster.lossy = True  # the rules may not ask for what is lost
    leader.disk._rng = LosesAll()
    leader.crash()
    return leader, follower


@pytest.mark.parametrize("flushes", [False, True])
def test_r17_the_last_replica_in_sync_loses_its_unflushed_tail_and_nothing_else(flushes: Any) -> None:
    """Other replicas do not take over: they truncate to what is left. With flush.messages=1 there is nothing to lose."""

    async def script(stage: Any) -> None:
        leader, follower = await last_one_crashes(stage)
        await follower.start()
        await stage.until(lambda: stage.cluster.rules.state(("t", 0)).leader == -1, "nobody leads")
        await stage.cluster.pass_time(2 * stage.tree.session_timeout_s)
        assert stage.cluster.rules.state(("t", 0)).leader == -1, "who is not in sync is not elected, although it has more"
        await leader.start()
        await stage.settled()
        assert stage.cluster.rules.state(("t", 0)).leader == leader.number
        kept = EVERYTHING if flushes else EVERYTHING[:1]
        assert values(leader) == values(follower) == kept
        await stage.produce(leader, "t", b"the next", acks=-1)
        await stage.settled()
        assert values(leader) == values(follower) == [*kept, b"the next"], "it goes on where the log ends"

    Stage(script, flushes=flushes).run()


def test_r17_a_consumer_notices_that_the_tail_is_lost() -> None:
    """It has read beyond the new end of the log in the old epoch (KIP-320)."""

    async def script(stage: Any) -> None:
        leader, follower = await last_one_crashes(stage)
        await follower.start()
        await leader.start()
        await stage.settled()
        replica = _replica(leader, "t")
        asked = FetchPartition(
            partition=0, fetch_offset=3, partition_max_bytes=1000, current_leader_epoch=replica.leader_epoch, last_fetched_epoch=0
        )
        topic = FetchTopic(topic="t", topic_id=replica.topic_id, partitions=[asked])
        fetch = FetchRequest(max_wait_ms=0, min_bytes=1, max_bytes=1000, session_epoch=-1, topics=[topic])
        ended = OffsetForLeaderPartition(partition=0, current_leader_epoch=replica.leader_epoch, leader_epoch=0)
        question = OffsetForLeaderEpochRequest(replica_id=-1, topics=[OffsetForLeaderTopic(topic="t", partitions=[ended])])

        async def act(actor: Any) -> None:
            address = ("127.0.0.1", leader.port)
            found = (await actor.call(address, "fetch", 17, fetch)).responses[0].partitions[0]
            assert found.diverging_epoch is not None, "the leader does not say where the log ends"
            assert (found.diverging_epoch.epoch, found.diverging_epoch.end_offset, bytes(found.records)) == (0, 1, b"")
            fetch.topics[0].partitions[0].last_fetched_epoch = -1
            found = (await actor.call(address, "fetch", 17, fetch)).responses[0].partitions[0]
            assert found.error_code == ErrorCode.OFFSET_OUT_OF_RANGE
            answer = (await actor.call(address, "offset_for_leader_epoch", 4, question)).topics[0].partitions[0]
            assert (answer.error_code, answer.leader_epoch, answer.end_offset) == (ErrorCode.NONE, 0, 1)

        await stage.cluster.alone("consumer", act)

    Stage(script, flushes=False).run()
