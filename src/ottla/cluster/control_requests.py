"""Control requests: LeaderAndIsr, UpdateMetadata and StopReplica, by which the controller tells brokers of a new image (F61).

Pure: compares two images. Topics that are the same object in both are skipped, and what all brokers are sent is built once.

1. A broker that has registered since the image before is sent everything: its replicas and the whole cluster, marked as such.
2. Other brokers are sent what changed: LeaderAndIsr goes to the replicas of a partition whose leader epoch changed,
   UpdateMetadata to every broker, StopReplica to brokers that are no longer a replica.
3. Every request carries the broker epoch it is meant for (KIP-380).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import Final

from ottla.cluster.image import BrokerImage, ClusterImage, PartitionImage, TopicImage
from ottla.cluster.tree_changes import changed_topics
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

VERSIONS: Final = {"leader_and_isr": 7, "update_metadata": 8, "stop_replica": 4}
"""The versions of Kafka 3.9 with ZooKeeper."""

FULL_UPDATE: Final = 2
"""Type of an UpdateMetadata that names every topic of the cluster (KIP-866)."""
DELETED: Final = -2
"""Leader and leader epoch of a partition whose topic is being deleted."""
_SECURITY_PROTOCOLS: Final = {"PLAINTEXT": 0, "SSL": 1, "SASL_PLAINTEXT": 2, "SASL_SSL": 3}


@dataclass(slots=True)
class ControlRequests:
    """The requests to one broker, in this order."""

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
class _Contents:
    """The contents of the requests to one broker, by topic."""

    leader_and_isr: dict[str, LeaderAndIsrTopicState] = field(default_factory=dict)
    leaders: set[int] = field(default_factory=set)
    stop_replica: dict[str, StopReplicaTopicState] = field(default_factory=dict)


def control_requests_between(
    before: ClusterImage,
    after: ClusterImage,
    *,
    controller_epoch: int,
    listener: str,
    created: Collection[tuple[str, int]] = (),
) -> list[ControlRequests]:
    """`listener`: the inter-broker listener. `created`: partitions that no broker knows yet, although `before` may be empty (the
    start of a term)."""
    new_brokers = {
        broker.id
        for broker in after.brokers.values()
        if broker.id not in before.brokers or before.brokers[broker.id].epoch != broker.epoch
    }
    contents: dict[int, _Contents] = {broker: _Contents() for broker in after.brokers}
    changed: list[UpdateMetadataTopicState] = []
    # At the start of a term every broker is sent everything, and nobody the changes.
    for topic in changed_topics(before, after) if before.topics or len(new_brokers) < len(after.brokers) else ():
        old_topic = before.topics.get(topic.name)
        # A topic is deleted and created again in two steps: its StopReplica must not come after the LeaderAndIsr of the next one.
        assert old_topic is None or old_topic.topic_id == topic.topic_id, topic.name
        states = _add_changes(old_topic, topic, after, contents, new_brokers, created, controller_epoch, blank=not before.brokers)
        if states:
            changed.append(UpdateMetadataTopicState(topic_name=topic.name, topic_id=topic.topic_id, partition_states=states))
    if before.topics is not after.topics:
        for name, old_topic in before.topics.items():
            if name not in after.topics:
                for number, partition in enumerate(old_topic.partitions):
                    for replica in partition.replicas:
                        if replica in contents:
                            _add_stop_replica(contents[replica], name, number, DELETED)
                changed.append(_deleted(old_topic, controller_epoch))
    everything = _add_everything(after, contents, new_brokers, created, controller_epoch) if new_brokers else []
    brokers_changed = before.brokers != after.brokers or before.controller_id != after.controller_id
    live = [_live(broker) for broker in after.brokers.values()]
    found: list[ControlRequests] = []
    for broker in after.brokers.values():
        requests = ControlRequests(broker)
        content = contents[broker.id]
        if content.leader_and_isr:
            requests.leader_and_isr = LeaderAndIsrRequest(
                controller_id=after.controller_id,
                controller_epoch=controller_epoch,
                broker_epoch=broker.epoch,
                topic_states=list(content.leader_and_isr.values()),
                live_leaders=_live_leaders(content.leaders, after, listener),
            )
        topics = everything if broker.id in new_brokers else changed
        if topics or brokers_changed or broker.id in new_brokers:
            requests.update_metadata = UpdateMetadataRequest(
                controller_id=after.controller_id,
                controller_epoch=controller_epoch,
                broker_epoch=broker.epoch,
                topic_states=topics,
                live_brokers=live,
                type=FULL_UPDATE if topics is everything else 0,
            )
        if content.stop_replica:
            requests.stop_replica = stop_replica(after, broker, controller_epoch, content.stop_replica.values())
        if requests.requests():
            found.append(requests)
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


def _add_everything(
    image: ClusterImage,
    contents: dict[int, _Contents],
    new_brokers: set[int],
    created: Collection[tuple[str, int]],
    controller_epoch: int,
) -> list[UpdateMetadataTopicState]:
    """LeaderAndIsr for all of their replicas. Returns every topic, for their UpdateMetadata."""
    for topic in image.topics.values():
        for number, partition in enumerate(topic.partitions):
            state = None
            for replica in partition.replicas:
                if replica in new_brokers:
                    if state is None:
                        state = _state(number, partition, controller_epoch, is_new=(topic.name, number) in created)
                    _add_leader_and_isr(contents[replica], topic, state)
    return [_whole(topic, image, controller_epoch) for topic in image.topics.values()]


def _add_changes(
    old_topic: TopicImage | None,
    topic: TopicImage,
    after: ClusterImage,
    contents: dict[int, _Contents],
    new_brokers: set[int],
    created: Collection[tuple[str, int]],
    controller_epoch: int,
    *,
    blank: bool,
) -> list[UpdateMetadataPartitionState]:
    states: list[UpdateMetadataPartitionState] = []
    for number, partition in enumerate(topic.partitions):
        old = old_topic.partitions[number] if old_topic is not None and number < len(old_topic.partitions) else None
        if old is partition or old == partition:
            continue
        states.append(_metadata(number, partition, after, controller_epoch))
        if old is None or old.leader_epoch != partition.leader_epoch:
            is_new = (old is None and not blank) or (topic.name, number) in created
            by_newness: dict[bool, LeaderAndIsrPartitionState] = {}
            for replica in partition.replicas:
                if replica in contents and replica not in new_brokers:
                    new = is_new or (old is not None and replica not in old.replicas)
                    if new not in by_newness:
                        by_newness[new] = _state(number, partition, controller_epoch, is_new=new)
                    _add_leader_and_isr(contents[replica], topic, by_newness[new])
        for replica in old.replicas if old is not None else ():
            if replica not in partition.replicas and replica in contents:
                _add_stop_replica(contents[replica], topic.name, number, partition.leader_epoch)
    return states


def _state(number: int, partition: PartitionImage, controller_epoch: int, *, is_new: bool) -> LeaderAndIsrPartitionState:
    """The same for every replica of a partition."""
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


def _add_leader_and_isr(contents: _Contents, topic: TopicImage, state: LeaderAndIsrPartitionState) -> None:
    states = contents.leader_and_isr.get(topic.name)
    if states is None:
        states = contents.leader_and_isr[topic.name] = LeaderAndIsrTopicState(topic_name=topic.name, topic_id=topic.topic_id)
    states.partition_states.append(state)
    contents.leaders.add(state.leader)


def _add_stop_replica(contents: _Contents, topic: str, number: int, leader_epoch: int) -> None:
    states = contents.stop_replica.get(topic)
    if states is None:
        states = contents.stop_replica[topic] = StopReplicaTopicState(topic_name=topic)
    states.partition_states.append(
        StopReplicaPartitionState(partition_index=number, leader_epoch=leader_epoch, delete_partition=True)
    )


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
