"""What a fetcher does with a reply that is not for the role a partition has now."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from ottla.broker.replicas.replica_fetcher import FetchState, _Fetcher, _Followed
from ottla.protocol.messages.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from ottla.runtime.clock import SystemClock
from ottla.types import TopicPartition

KEY = TopicPartition("t", 0)


def test_what_came_for_a_former_role_is_said_again() -> None:
    """Simulator, cluster seed 38: a role came between the fetch and its reply. The reply, with the high watermark, was passed
    over; the leader's session had noted that it was told, and a follower's high watermark stood still."""
    partition: Any = SimpleNamespace(topic_partition=KEY, topic_id=b"i" * 16, leader_epoch=3, is_leader=False, is_offline=False)
    unused: Any = None
    fetcher = _Fetcher(unused, unused, SystemClock(), unused, unused, leader=1, number=0)
    former = _Followed(partition)
    partition.leader_epoch = 4
    fetcher._followed = {KEY: _Followed(partition)}
    fetcher._session.replied(7)
    data = PartitionData(partition_index=0, high_watermark=237, records=b"")
    reply = FetchResponse(responses=[FetchableTopicResponse(topic_id=partition.topic_id, partitions=[data])])
    assert fetcher._take(reply, {former.key: former}, {former.key: FetchState(3, 237, 2, 0)}) == []
    assert fetcher._session.request({}).session_id == 0, "the next fetch is a full one: the leader says everything again"
