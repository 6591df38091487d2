"""The control requests to each broker when the image changes (F61, C03)."""

from __future__ import annotations

from dataclasses import replace

from ottla.broker.controller.controller_client import UpdateMetadataEncodings
from ottla.cluster.control_requests import (
    FULL_UPDATE,
    VERSIONS,
    ControlRequests,
    control_requests_between,
)
from ottla.cluster.image import BrokerImage, ClusterImage, Endpoint, PartitionImage, TopicImage
from ottla.wire.codec import decode, encode

BLANK = ClusterImage("c")


def broker(number: int, epoch: int = 0) -> BrokerImage:
    endpoints = (Endpoint("INSIDE", f"in{number}", 9000), Endpoint("OUT", f"out{number}", 9001, "SSL"))
    return BrokerImage(number, epoch or 100 + number, "r1", endpoints)


P = PartitionImage(1, 0, (1, 2), (1, 2))
T = TopicImage("t", b"t" * 16, (P, PartitionImage(2, 3, (2, 3), (2, 3), 5)))
IMAGE = ClusterImage("c", 1, {number: broker(number) for number in (1, 2, 3)}).with_topics([T])


def between(before: ClusterImage, after: ClusterImage, created: set[tuple[str, int]] | None = None) -> dict[int, ControlRequests]:
    found = control_requests_between(before, after, controller_epoch=9, listener="INSIDE", created=created or set())
    return {requests.broker.id: requests for requests in found}


def led(requests: ControlRequests) -> dict[tuple[str, int], tuple[int, int, bool]]:
    if requests.leader_and_isr is None:
        return {}
    return {
        (topic.topic_name, state.partition_index): (state.leader, state.leader_epoch, state.is_new)
        for topic in requests.leader_and_isr.topic_states
        for state in topic.partition_states
    }


def updated(requests: ControlRequests) -> set[tuple[str, int, int]]:
    assert requests.update_metadata is not None
    return {
        (topic.topic_name, state.partition_index, state.leader)
        for topic in requests.update_metadata.topic_states
        for state in topic.partition_states
    }


def test_a_new_controller_tells_everybody_everything() -> None:
    found = between(BLANK, IMAGE, created={("t", 1)})
    assert set(found) == {1, 2, 3}
    assert led(found[1]) == {("t", 0): (1, 0, False)}
    assert led(found[2]) == {("t", 0): (1, 0, False), ("t", 1): (2, 3, True)}
    for number, requests in found.items():
        assert updated(requests) == {("t", 0, 1), ("t", 1, 2)}
        update = requests.update_metadata
        assert update is not None
        assert (update.controller_id, update.controller_epoch, update.broker_epoch) == (1, 9, 100 + number)
        assert {live.id for live in update.live_brokers} == {1, 2, 3}
        assert [(each.listener, each.host, each.security_protocol) for each in update.live_brokers[0].endpoints] == [
            ("INSIDE", "in1", 0),
            ("OUT", "out1", 1),
        ]
    leaders = found[2].leader_and_isr
    assert leaders is not None
    assert [(leader.broker_id, leader.host_name, leader.port) for leader in leaders.live_leaders] == [
        (1, "in1", 9000),
        (2, "in2", 9000),
    ]
    assert leaders.topic_states[0].topic_id == b"t" * 16


def test_the_requests_can_be_encoded_in_kafkas_versions() -> None:
    for requests in between(BLANK, IMAGE).values():
        for name, request in requests.requests():
            assert decode(type(request), VERSIONS[name], encode(request, VERSIONS[name])) == request


def test_a_new_topic_is_told_to_its_replicas_as_new_and_to_all_as_news() -> None:
    added = TopicImage("n", b"n" * 16, (PartitionImage(3, 0, (3,), (3,)),))
    found = between(IMAGE, IMAGE.with_topics([added]))
    assert led(found[3]) == {("n", 0): (3, 0, True)}
    assert found[1].leader_and_isr is None
    assert all(updated(requests) == {("n", 0, 3)} for requests in found.values())


def test_other_in_sync_replicas_under_the_same_leader_are_only_news() -> None:
    grown = replace(T, partitions=(T.partitions[0], replace(T.partitions[1], isr=(2,), partition_epoch=6)))
    found = between(IMAGE, IMAGE.with_topics([grown]))
    assert all(requests.leader_and_isr is None for requests in found.values())
    assert all(updated(requests) == {("t", 1, 2)} for requests in found.values())


def test_another_leader_is_an_order_to_the_replicas_that_live() -> None:
    moved = replace(T, partitions=(replace(P, leader=2, leader_epoch=1, isr=(2,), partition_epoch=1), T.partitions[1]))
    after = replace(IMAGE, brokers={2: broker(2), 3: broker(3)}).with_topics([moved])
    found = between(IMAGE, after)
    assert set(found) == {2, 3}
    assert led(found[2]) == {("t", 0): (2, 1, False)}
    update = found[3].update_metadata
    assert update is not None
    assert [state.offline_replicas for state in update.topic_states[0].partition_states] == [[1]]


def test_a_broker_in_a_new_life_is_told_everything_under_its_new_epoch() -> None:
    """C03, KIP-380."""
    found = between(IMAGE, replace(IMAGE, brokers={**IMAGE.brokers, 2: broker(2, 555)}))
    assert led(found[2]).keys() == {("t", 0), ("t", 1)}
    assert updated(found[2]) == {("t", 0, 1), ("t", 1, 2)}
    assert found[2].leader_and_isr is not None
    assert found[2].leader_and_isr.broker_epoch == 555
    assert updated(found[1]) == set()


def test_who_is_no_replica_any_more_is_told_to_delete_it() -> None:
    """R18."""
    left = replace(T, partitions=(PartitionImage(2, 1, (2,), (2,), 1), T.partitions[1]))
    stop = between(IMAGE, IMAGE.with_topics([left]))[1].stop_replica
    assert stop is not None
    (state,) = stop.topic_states[0].partition_states
    assert (state.partition_index, state.leader_epoch, state.delete_partition) == (0, 1, True)


def test_a_deleted_topic_goes_from_its_replicas_and_from_all_pictures() -> None:
    found = between(IMAGE, IMAGE.with_topics((), ["t"]))
    assert updated(found[1]) == {("t", 0, -2), ("t", 1, -2)}
    stop = found[3].stop_replica
    assert stop is not None
    (state,) = stop.topic_states[0].partition_states
    assert (state.partition_index, state.leader_epoch, state.delete_partition) == (1, -2, True)
    assert [name for name, _ in found[2].requests()] == ["update_metadata", "stop_replica"]


def test_nothing_changed_nothing_told() -> None:
    assert between(IMAGE, IMAGE) == {}
    assert between(IMAGE, replace(IMAGE, topics=dict(IMAGE.topics))) == {}


def test_what_all_are_told_is_encoded_once_and_reads_as_if_for_each() -> None:
    for before in (BLANK, replace(IMAGE, topics={}, topic_names={})):
        encodings = UpdateMetadataEncodings()
        for version in (8, 7, 6, 5):
            for requests in between(before, IMAGE).values():
                request = requests.update_metadata
                assert request is not None
                assert (request.type == FULL_UPDATE) == (before is BLANK)
                found = encodings.encoded(request, version).body
                if version < 8:
                    request.type = 0  # there was no word for it
                assert found == encode(request, version)


def test_another_content_is_another_encoding() -> None:
    encodings = UpdateMetadataEncodings()
    after = IMAGE.with_topics([replace(T, partitions=(replace(P, leader=2, leader_epoch=1, partition_epoch=1), T.partitions[1]))])
    for _ in range(2):
        for found in (between(BLANK, IMAGE), between(IMAGE, after), between(BLANK, after)):
            for requests in found.values():
                assert requests.update_metadata is not None
                assert encodings.encoded(requests.update_metadata, 8).body == encode(requests.update_metadata, 8)
