"""From one image of the cluster to the next: what the controller has to tell each broker (F61).

Pure: compares two images and builds the requests of Kafka's inter-broker protocol. Topics that the two images share are not
looked at, and what all brokers are told is built once.

1. A broker that is new (or back in a new life, with another epoch) is told everything: its replicas, and the whole cluster; and
   that this is all.
2. Others are told what changed: LeaderAndIsr goes to the replicas of a partition whose leader epoch changed, UpdateMetadata to
   everybody, StopReplica to those who are no replica any more.
3. Every order carries the epoch of the broker's life it is meant for (KIP-380).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable
from copy import copy
from dataclasses import dataclass, field
from typing import Final

from ottla.cluster.image import BrokerImage, ClusterImage, PartitionImage, TopicImage
from ottla.cluster.tree_changes import changed_topics
from ottla.protocol.headers import EncodedRequest
from ottla.protocol.messages.leader_and_isr import (
    LeaderAndIsrLiveLeader,
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrTopicState,
)
from ottla.protocol.messages.stop_replica import StopReplicaPartitionState, StopReplicaRequest, StopReplicaTopicState
from ottla.protocol.messages.update_metadata import (
    UpdateMetadataBroker,
    UpdateMetadataEndpoint,
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataTopicState,
)
from ottla.wire.codec import encode

VERSIONS: Final = {"leader_and_isr": 7, "update_metadata": 8, "stop_replica": 4}
"""What Kafka 3.9 speaks between its brokers on ZooKeeper."""

FULL_PICTURE: Final = 2
"""Type of an UpdateMetadata that tells of every topic there is (KIP-866)."""
DELETED: Final = -2
"""Leader and leader epoch of a partition whose topic is being deleted."""
_BROKER_EPOCH_FROM: Final = 5
_KRAFT_FROM: Final = 8
"""Whether the controller is one of KRaft, and whether the picture is whole."""
_CONTENTS_KEPT: Final = 2
"""Newcomers are told everything, the others what is new."""
_SECURITY_PROTOCOLS: Final = {"PLAINTEXT": 0, "SSL": 1, "SASL_PLAINTEXT": 2, "SASL_SSL": 3}


class UpdateMetadataEncodings:
    """The encoded form of UpdateMetadata, which says the same to all brokers but for the epoch of each.

    Encoded once for each content and version: for a thousand brokers it costs little more than for one.
    """

    def __init__(self) -> None:
        self._recent: deque[tuple[UpdateMetadataRequest, int, bytes]] = deque(maxlen=_CONTENTS_KEPT)

    def encoded(self, request: UpdateMetadataRequest, version: int) -> EncodedRequest:
        body = self._body(request, version)
        if version < _BROKER_EPOCH_FROM:
            return EncodedRequest(body)
        # Before it: the controller's id, (from version 8 on) whether it is one of KRaft, the controller's epoch.
        at = 9 if version >= _KRAFT_FROM else 8
        return EncodedRequest(body[:at] + request.broker_epoch.to_bytes(8, "big", signed=True) + body[at + 8 :])

    def _body(self, request: UpdateMetadataRequest, version: int) -> bytes:
        """With whoever's epoch."""
        for known, known_version, body in self._recent:
            # The very same lists: `orders_between` builds them once for all.
            if (
                known.topic_states is request.topic_states
                and known.live_brokers is request.live_brokers
                and known_version == version
                and (known.controller_id, known.controller_epoch) == (request.controller_id, request.controller_epoch)
            ):
                return body
        said = request
        if version < _KRAFT_FROM and request.type:
            said = copy(request)
            said.type = 0  # there was no word for it
        body = encode(said, version)
        self._recent.append((request, version, body))
        return body


@dataclass(slots=True)
class BrokerOrders:
    """What one broker is told, in this order."""

    broker: BrokerImage
    leader_and_isr: LeaderAndIsrRequest | None = None
    update_metadata: UpdateMetadataRequest | None = None
    stop_replica: StopReplicaRequest | None = None

    def requests(self) -> list[tuple[str, object]]:
        named = (
            ("leader_and_isr", self.leader_and_isr),
            ("update_metadata", self.update_metadata),
            ("stop_replica", self.stop_replica),
        )
        return [(name, request) for name, request in named if request is not None]


@dataclass(slots=True)
class _Told:
    """The content of one broker's orders, by topic."""

    leader_and_isr: dict[str, LeaderAndIsrTopicState] = field(default_factory=dict)
    leaders: set[int] = field(default_factory=set)
    stop_replica: dict[str, StopReplicaTopicState] = field(default_factory=dict)


def orders_between(
    before: ClusterImage,
    after: ClusterImage,
    *,
    controller_epoch: int,
    listener: str,
    created: Collection[tuple[str, int]] = (),
) -> list[BrokerOrders]:
    """`listener`: the name of the one between brokers. `created`: partitions that are new although the former image may have none
    of anything (a take-over)."""
    newcomers = {
        broker.id
        for broker in after.brokers.values()
        if broker.id not in before.brokers or before.brokers[broker.id].epoch != broker.epoch
    }
    told: dict[int, _Told] = {broker: _Told() for broker in after.brokers}
    changed: list[UpdateMetadataTopicState] = []
    # Where all are newcomers (a take-over), nobody is told what is new: everybody is told everything.
    for topic in changed_topics(before, after) if before.topics or len(newcomers) < len(after.brokers) else ():
        former = before.topics.get(topic.name)
        # Deleting and creating are two steps: an order to delete must never follow one to create under the same name.
        assert former is None or former.topic_id == topic.topic_id, topic.name
        states = _tell_changes(former, topic, after, told, newcomers, created, controller_epoch, blank=not before.brokers)
        if states:
            changed.append(UpdateMetadataTopicState(topic_name=topic.name, topic_id=topic.topic_id, partition_states=states))
    if before.topics is not after.topics:
        for name, former in before.topics.items():
            if name not in after.topics:
                _tell_removed(former, told)
                changed.append(_deleted(former, controller_epoch))
    everything = _tell_newcomers(after, told, newcomers, created, controller_epoch) if newcomers else []
    brokers_changed = before.brokers != after.brokers or before.controller_id != after.controller_id
    live = [_live(broker) for broker in after.brokers.values()]
    found: list[BrokerOrders] = []
    for broker in after.brokers.values():
        orders = BrokerOrders(broker)
        content = told[broker.id]
        if content.leader_and_isr:
            orders.leader_and_isr = LeaderAndIsrRequest(
                controller_id=after.controller_id,
                controller_epoch=controller_epoch,
                broker_epoch=broker.epoch,
                topic_states=list(content.leader_and_isr.values()),
                live_leaders=_live_leaders(content.leaders, after, listener),
            )
        topics = everything if broker.id in newcomers else changed
        if topics or brokers_changed or broker.id in newcomers:
            orders.update_metadata = UpdateMetadataRequest(
                controller_id=after.controller_id,
                controller_epoch=controller_epoch,
                broker_epoch=broker.epoch,
                topic_states=topics,
                live_brokers=live,
                type=FULL_PICTURE if topics is everything else 0,
            )
        if content.stop_replica:
            orders.stop_replica = stop_replica(after, broker, controller_epoch, content.stop_replica.values())
        if orders.requests():
            found.append(orders)
    return found


def stop_replica(
    image: ClusterImage, broker: BrokerImage, controller_epoch: int, topics: Iterable[StopReplicaTopicState]
) -> StopReplicaRequest:
    return StopReplicaRequest(
        controller_id=image.controller_id,
        controller_epoch=controller_epoch,
        broker_epoch=broker.epoch,
        topic_states=list(topics),
    )


def _tell_newcomers(
    image: ClusterImage,
    told: dict[int, _Told],
    newcomers: set[int],
    created: Collection[tuple[str, int]],
    controller_epoch: int,
) -> list[UpdateMetadataTopicState]:
    """All of their replicas; and, returned, all there is, for their picture of the cluster."""
    for topic in image.topics.values():
        for number, partition in enumerate(topic.partitions):
            state = None
            for replica in partition.replicas:
                if replica in newcomers:
                    if state is None:
                        state = _state(number, partition, controller_epoch, is_new=(topic.name, number) in created)
                    _tell(told[replica], topic, state)
    return [_whole(topic, image, controller_epoch) for topic in image.topics.values()]


def _tell_changes(
    former: TopicImage | None,
    topic: TopicImage,
    after: ClusterImage,
    told: dict[int, _Told],
    newcomers: set[int],
    created: Collection[tuple[str, int]],
    controller_epoch: int,
    *,
    blank: bool,
) -> list[UpdateMetadataPartitionState]:
    states: list[UpdateMetadataPartitionState] = []
    for number, partition in enumerate(topic.partitions):
        old = former.partitions[number] if former is not None and number < len(former.partitions) else None
        if old is partition or old == partition:
            continue
        states.append(_metadata(number, partition, after, controller_epoch))
        if old is None or old.leader_epoch != partition.leader_epoch:
            is_new = (old is None and not blank) or (topic.name, number) in created
            by_newness: dict[bool, LeaderAndIsrPartitionState] = {}
            for replica in partition.replicas:
                if replica in told and replica not in newcomers:
                    new = is_new or (old is not None and replica not in old.replicas)
                    if new not in by_newness:
                        by_newness[new] = _state(number, partition, controller_epoch, is_new=new)
                    _tell(told[replica], topic, by_newness[new])
        for replica in old.replicas if old is not None else ():
            if replica not in partition.replicas and replica in told:
                _stop(told[replica], topic.name, number, partition.leader_epoch, delete=True)
    return states


def _state(number: int, partition: PartitionImage, controller_epoch: int, *, is_new: bool) -> LeaderAndIsrPartitionState:
    """What is told to every replica of a partition alike."""
    return LeaderAndIsrPartitionState(
        partition_index=number,
        controller_epoch=controller_epoch,
        leader=partition.leader,
        leader_epoch=partition.leader_epoch,
        isr=list(partition.isr),
        partition_epoch=partition.partition_epoch,
        replicas=list(partition.replicas),
        adding_replicas=list(partition.adding),
        removing_replicas=list(partition.removing),
        is_new=is_new,
        leader_recovery_state=int(partition.recovering),
    )


def _tell(told: _Told, topic: TopicImage, state: LeaderAndIsrPartitionState) -> None:
    states = told.leader_and_isr.get(topic.name)
    if states is None:
        states = told.leader_and_isr[topic.name] = LeaderAndIsrTopicState(topic_name=topic.name, topic_id=topic.topic_id)
    states.partition_states.append(state)
    told.leaders.add(state.leader)


def _stop(told: _Told, topic: str, number: int, leader_epoch: int, *, delete: bool) -> None:
    states = told.stop_replica.get(topic)
    if states is None:
        states = told.stop_replica[topic] = StopReplicaTopicState(topic_name=topic)
    states.partition_states.append(
        StopReplicaPartitionState(partition_index=number, leader_epoch=leader_epoch, delete_partition=delete)
    )


def _tell_removed(topic: TopicImage, told: dict[int, _Told]) -> None:
    for number, partition in enumerate(topic.partitions):
        for replica in partition.replicas:
            if replica in told:
                _stop(told[replica], topic.name, number, DELETED, delete=True)


def _metadata(number: int, partition: PartitionImage, image: ClusterImage, controller_epoch: int) -> UpdateMetadataPartitionState:
    return UpdateMetadataPartitionState(
        partition_index=number,
        controller_epoch=controller_epoch,
        leader=partition.leader,
        leader_epoch=partition.leader_epoch,
        isr=list(partition.isr),
        zk_version=partition.partition_epoch,
        replicas=list(partition.replicas),
        offline_replicas=[
            replica for replica in partition.replicas if replica not in image.brokers or replica in partition.offline
        ],
    )


def _whole(topic: TopicImage, image: ClusterImage, controller_epoch: int) -> UpdateMetadataTopicState:
    states = [_metadata(number, partition, image, controller_epoch) for number, partition in enumerate(topic.partitions)]
    return UpdateMetadataTopicState(topic_name=topic.name, topic_id=topic.topic_id, partition_states=states)


def _deleted(topic: TopicImage, controller_epoch: int) -> UpdateMetadataTopicState:
    states = [
        UpdateMetadataPartitionState(
            partition_index=number,
            controller_epoch=controller_epoch,
            leader=DELETED,
            leader_epoch=DELETED,
            isr=list(partition.isr),
            zk_version=partition.partition_epoch,
            replicas=list(partition.replicas),
        )
        for number, partition in enumerate(topic.partitions)
    ]
    return UpdateMetadataTopicState(topic_name=topic.name, topic_id=topic.topic_id, partition_states=states)


def _live(broker: BrokerImage) -> UpdateMetadataBroker:
    return UpdateMetadataBroker(
        id=broker.id,
        endpoints=[
            UpdateMetadataEndpoint(
                port=endpoint.port,
                host=endpoint.host,
                listener=endpoint.listener,
                security_protocol=_SECURITY_PROTOCOLS[endpoint.security_protocol],
            )
            for endpoint in broker.endpoints
        ],
        rack=broker.rack,
    )


def _live_leaders(leaders: set[int], image: ClusterImage, listener: str) -> list[LeaderAndIsrLiveLeader]:
    found: list[LeaderAndIsrLiveLeader] = []
    for leader in sorted(leaders):
        broker = image.brokers.get(leader)
        endpoint = broker.endpoint(listener) if broker is not None else None
        if endpoint is not None:
            found.append(LeaderAndIsrLiveLeader(broker_id=leader, host_name=endpoint.host, port=endpoint.port))
    return found
