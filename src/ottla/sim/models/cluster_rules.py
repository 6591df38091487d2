"""What must hold in a cluster at every moment, checked on the brokers, their disks and the metadata tree.

Owns: what was seen so far of each partition: who led which epoch, and what was committed.
Never: changes anything.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, NamedTuple

from ottla.broker.replicas.partition import Partition
from ottla.cluster.znodes import uuid_bytes
from ottla.sim.actors.play import Play
from ottla.sim.kernel.metadata_tree import MetadataTree
from ottla.sim.kernel.node import Node
from ottla.sim.models.log_files import FoundBatch, stored_batches
from ottla.sim.violation import Violation, require
from ottla.types import ZERO_UUID

Key = tuple[str, int]


@dataclass(slots=True)
class PartitionState:
    """The state of a partition in the tree."""

    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    replicas: tuple[int, ...]
    topic_id: bytes = ZERO_UUID
    is_moving: bool = False
    """Replicas are being added or removed."""


class Assigned(NamedTuple):
    """The replicas of a partition, with those being added and removed (KIP-455)."""

    replicas: tuple[int, ...]
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()

    @property
    def origin(self) -> set[int]:
        return set(self.replicas) - set(self.adding)

    @property
    def is_moving(self) -> bool:
        return bool(self.adding or self.removing)


@dataclass(slots=True)
class Known:
    """What was seen of a partition."""

    leaders: dict[int, int] = field(default_factory=dict)
    """By epoch."""
    leader_epoch: int = -1
    committed: dict[int, FoundBatch] = field(default_factory=dict)
    """Batches below a high watermark, by their offset."""
    committed_end: int = 0
    """The furthest high watermark of a current leader: what is below is committed for ever."""
    marks: dict[tuple[int, int, int], int] = field(default_factory=dict)
    """High watermark of a leader, by (broker, life, epoch)."""
    acknowledged_end: int = 0
    epochs: dict[tuple[int, int], int] = field(default_factory=dict)
    """The last leader epoch that a broker knew, by (broker, life)."""
    assigned: Assigned | None = None
    """Its replicas in the last write of the tree."""


@lru_cache(maxsize=1000)
def _parsed(data: bytes) -> Any:
    return json.loads(data)


class ClusterRules:
    def __init__(self, nodes: list[Node], tree: MetadataTree, play: Play) -> None:
        self._nodes = nodes
        self._by_id = {node.number: node for node in nodes}
        self._tree = tree
        self._play = play
        self._known: dict[tuple[Key, bytes], Known] = {}
        """By topic id too: another topic of the same name is another one."""
        self._controller_epoch: int | None = None
        self._seen_sends = 0
        self.lossy = False
        """Acknowledged records may be lost: unclean elections are allowed, or the last one in sync lost its tail."""
        self.broken: Violation | None = None
        """Found while the tree was changed, to be raised by the next `check`."""
        tree.on_change = self._tree_changed

    # --- the tree

    def _tree_changed(self, paths: list[str]) -> None:
        try:
            for path in paths:
                self._look_at(path)
        except Violation as violation:
            self.broken = self.broken or violation

    def _look_at(self, path: str) -> None:
        if path == "/controller_epoch":
            node = self._tree.get(path)
            epoch = int(node.data) if node is not None else 0
            if self._controller_epoch is not None:
                require(
                    epoch == self._controller_epoch + 1,
                    "controller-epoch",
                    f"the controller epoch went from {self._controller_epoch} to {epoch}",
                )
            self._controller_epoch = epoch
        elif path.endswith("/state") and path.startswith("/brokers/topics/"):
            _, _, _, topic, _, number, _ = path.split("/")
            state = self.state((topic, int(number)))
            if state is not None:
                self._check_state((topic, int(number)), state)
        elif path.startswith("/brokers/topics/") and path.count("/") == 3:
            self._check_moves(path.rpartition("/")[2])

    def _check_moves(self, topic: str) -> None:
        """Replicas leave only when all of the target are in sync, or when the reassignment is cancelled (R18)."""
        node = self._tree.get(f"/brokers/topics/{topic}")
        if node is None:
            return
        found = _parsed(node.data)
        for number, replicas in found["partitions"].items():
            adding, removing = (tuple(found.get(key, {}).get(number, ())) for key in ("adding_replicas", "removing_replicas"))
            key, now = (topic, int(number)), Assigned(tuple(replicas), adding, removing)
            state = self.state(key)
            known = self._of(key, uuid_bytes(found["topic_id"]))
            before, known.assigned = known.assigned, now
            if before is None or before == now or state is None:
                continue
            name = f"{topic}-{number} went from {before} to {now}, in sync {state.isr}"
            if now.is_moving:
                require(
                    now.origin == before.origin or not before.is_moving,
                    "moved",
                    f"{name}: the original replicas changed while it was reassigned",
                )
                continue
            is_there = set(now.replicas) <= set(state.isr) or set(now.replicas) == set(before.replicas)
            called_off = before.is_moving and set(now.replicas) == before.origin
            require(
                is_there or called_off,
                "moved",
                f"{name}: replicas left before all new ones were in sync, and nobody cancelled the reassignment",
            )

    def state(self, key: Key) -> PartitionState | None:
        node = self._tree.get(f"/brokers/topics/{key[0]}/partitions/{key[1]}/state")
        topic = self._tree.get(f"/brokers/topics/{key[0]}")
        if node is None or topic is None:
            return None
        found, assigned = _parsed(node.data), _parsed(topic.data)
        number = str(key[1])
        replicas = tuple(assigned["partitions"].get(number, ()))
        is_moving = bool(assigned.get("adding_replicas", {}).get(number) or assigned.get("removing_replicas", {}).get(number))
        topic_id = uuid_bytes(assigned["topic_id"])
        return PartitionState(found["leader"], found["leader_epoch"], tuple(found["isr"]), replicas, topic_id, is_moving)

    def partitions(self) -> list[Key]:
        found = []
        for topic in self._tree.children("/brokers/topics"):
            found += [(topic, int(number)) for number in self._tree.children(f"/brokers/topics/{topic}/partitions")]
        return sorted(found)

    def _of(self, key: Key, topic_id: bytes) -> Known:
        return self._known.setdefault((key, topic_id), Known())

    def _check_state(self, key: Key, state: PartitionState) -> None:
        known = self._of(key, state.topic_id)
        name = f"{key[0]}-{key[1]}"
        require(
            state.leader_epoch >= known.leader_epoch,
            "epochs",
            f"{name}: the leader epoch went back from {known.leader_epoch} to {state.leader_epoch}",
        )
        known.leader_epoch = state.leader_epoch
        require(
            set(state.isr) <= set(state.replicas),
            "isr",
            f"{name}: the ISR {state.isr} is not part of the replicas {state.replicas}",
        )
        require(bool(state.isr), "isr", f"{name}: the ISR is empty")
        if state.leader < 0:
            return
        require(state.leader in state.isr, "isr", f"{name}: leader {state.leader} is not in the ISR {state.isr}")
        before = known.leaders.setdefault(state.leader_epoch, state.leader)
        require(
            before == state.leader,
            "one-leader",
            f"{name}: leader epoch {state.leader_epoch} had leader {before}, and now has {state.leader}",
        )

    # --- the brokers

    def check(self) -> None:
        """The rules that are cheap enough for several times a second."""
        if self.broken is not None:
            raise self.broken
        self._note_acknowledged()
        for node in self._nodes:
            if node.broker is None or node.process is None or not node.alive:
                continue
            for partition in sorted(node.broker.partitions, key=lambda each: each.topic_partition):
                self._check_replica(node, partition)

    def _note_acknowledged(self) -> None:
        sends = self._play.sends
        for note in sends[self._seen_sends :]:
            if note.offset is not None:
                known = self._of(note.place, self._play.topics[note.place[0]].topic_id)
                known.acknowledged_end = max(known.acknowledged_end, note.offset + 1)
        # The last ones may not be answered yet.
        while self._seen_sends < len(sends) - 200:
            self._seen_sends += 1

    def _check_replica(self, node: Node, partition: Partition) -> None:
        if partition.is_offline:
            return
        key: Key = (partition.topic_partition.topic, partition.topic_partition.partition)
        name = f"{key[0]}-{key[1]}"
        known = self._of(key, partition.topic_id)
        log = partition.log
        require(
            log.log_start_offset <= log.high_watermark <= log.log_end_offset,
            "high-watermark",
            f"{name} on {node.host}: not {log.log_start_offset} <= {log.high_watermark} <= {log.log_end_offset}",
        )
        epoch = partition.leader_epoch
        last = known.epochs.get((node.number, node.lives), epoch)
        require(epoch >= last, "epochs", f"{name} on {node.host}: its leader epoch went back from {last} to {epoch} (R08)")
        known.epochs[node.number, node.lives] = epoch
        if not partition.is_leader:
            return
        leader = known.leaders.setdefault(epoch, node.number)
        require(
            leader == node.number, "one-leader", f"{name}: broker {leader} leads leader epoch {epoch}, and so does {node.host}"
        )
        life = (node.number, node.lives, epoch)
        before = known.marks.get(life, 0)
        require(
            log.high_watermark >= before,
            "high-watermark",
            f"{name} on {node.host}: the high watermark of epoch {epoch} went back from {before} to {log.high_watermark}",
        )
        known.marks[life] = log.high_watermark
        state = self.state(key)
        if state is None or state.leader_epoch != epoch or state.topic_id != partition.topic_id:
            return  # it does not yet know that it was replaced
        if not self.lossy:
            known.committed_end = max(known.committed_end, log.high_watermark)
            expected = max(known.acknowledged_end, known.committed_end)
            require(
                log.log_end_offset >= expected,
                "committed",
                f"{name}: {node.host} leads epoch {epoch} and ends at {log.log_end_offset}, but {expected} was acknowledged",
            )
        for member in state.isr:
            self._check_member(name, node, partition, self._by_id[member], known.committed_end)

    def _check_member(self, name: str, leader: Node, partition: Partition, member: Node, committed_end: int) -> None:
        """Every member of the ISR has everything that any leader ever committed (R01-R03)."""
        if member is leader or member.broker is None or not member.alive:
            return
        replica = member.broker.partitions.find(partition.topic_partition)
        if replica is None or replica.is_offline or replica.topic_id != partition.topic_id or self.lossy:
            return
        require(
            replica.log.log_end_offset >= committed_end,
            "in-sync",
            f"{name}: {committed_end} was committed, {leader.host} leads, {member.host} is in sync and ends at "
            f"{replica.log.log_end_offset}",
        )

    def check_logs(self, *, whole: bool = False) -> None:
        """Committed records are equal on all replicas (R06, R20). `whole`: whole logs are."""
        if self.lossy and not whole:
            return
        for key in self.partitions():
            state = self.state(key)
            if state is None:
                continue
            known = self._of(key, state.topic_id)
            first: tuple[Node, list[FoundBatch]] | None = None
            for node, partition in self._replicas(key):
                if "compact" in partition.log.config.cleanup_policy or partition.topic_id != state.topic_id:
                    continue
                batches = stored_batches(node.disk, partition.log.dir, partition.log.log_start_offset)
                if whole:
                    if first is None:
                        first = node, batches
                    else:
                        self._check_same(key, first, (node, batches))
                else:
                    self._check_committed(key, known, node, partition, batches)

    def _replicas(self, key: Key) -> Iterable[tuple[Node, Partition]]:
        for node in self._nodes:
            if node.broker is not None and node.alive:
                for partition in node.broker.partitions:
                    if tuple(partition.topic_partition) == key and not partition.is_offline:
                        yield node, partition

    def _check_committed(self, key: Key, known: Known, node: Node, partition: Partition, batches: list[FoundBatch]) -> None:
        for batch in batches:
            if batch.last_offset >= partition.log.high_watermark:
                break
            before = known.committed.setdefault(batch.base_offset, batch)
            require(
                before.data == batch.data,
                "logs-differ",
                f"{key[0]}-{key[1]}: at {batch.base_offset}, committed, {node.host} has another batch "
                f"(epoch {batch.leader_epoch}) than was seen (epoch {before.leader_epoch})",
            )

    def _check_same(self, key: Key, one: tuple[Node, list[FoundBatch]], other: tuple[Node, list[FoundBatch]]) -> None:
        left, right = [each.data for each in one[1]], [each.data for each in other[1]]
        if left == right:
            return
        at = next((n for n, (a, b) in enumerate(zip(left, right, strict=False)) if a != b), min(len(left), len(right)))
        offset = (one[1] if at < len(left) else other[1])[at].base_offset
        raise Violation("logs-differ", f"{key[0]}-{key[1]}: {one[0].host} and {other[0].host} differ from offset {offset} on")

    # --- at the end

    def unsettled(self) -> str:
        """Why the cluster has not settled; empty: it has."""
        for key in self.partitions():
            name, state = f"{key[0]}-{key[1]}", self.state(key)
            if state is None:
                return f"{name} has no state"
            if state.leader < 0:
                return f"{name} has no leader"
            if state.is_moving:
                return f"{name} is on its way to other replicas"
            if set(state.isr) != set(state.replicas):
                return f"{name}: the ISR {state.isr} is not part of the replicas {state.replicas}"
            ends = set()
            for number in state.replicas:
                broker = self._by_id[number].broker
                replica = (
                    next((each for each in broker.partitions if tuple(each.topic_partition) == key), None) if broker else None
                )
                if replica is None or replica.is_offline or replica.topic_id != state.topic_id:
                    return f"{name} is not on broker {number}"
                settings = self._settings(key[0])
                if str(replica.log.config.segment_bytes) != settings.get("segment.bytes", str(replica.log.config.segment_bytes)):
                    return f"{name}: broker {number} does not keep to {settings}"
                if replica.is_leader != (number == state.leader) or replica.leader_epoch != state.leader_epoch:
                    return f"{name}: broker {number} is not what it should be in epoch {state.leader_epoch}"
                if replica.is_leader and set(replica.isr) != set(state.isr):
                    return f"{name}: broker {number} takes {replica.isr} for in sync"
                ends.add((replica.log.log_end_offset, replica.log.high_watermark))
            if len(ends) > 1 or any(end != mark for end, mark in ends):
                return f"{name}: ends and high watermarks are {sorted(ends)}"
        if doomed := self._tree.children("/admin/delete_topics"):
            return f"{doomed} are being deleted"
        return self._leftovers() or self._misinformed()

    def _leftovers(self) -> str:
        """Replicas on brokers that should have none."""
        for node in self._nodes:
            for partition in node.broker.partitions if node.broker is not None else ():
                key: Key = (partition.topic_partition.topic, partition.topic_partition.partition)
                state = self.state(key)
                if state is None or node.number not in state.replicas:
                    return f"{node.host} has {key[0]}-{key[1]}, which is not its"
        return ""

    def _settings(self, topic: str) -> dict[str, str]:
        node = self._tree.get(f"/config/topics/{topic}")
        return dict(_parsed(node.data)["config"]) if node is not None else {}

    def _misinformed(self) -> str:
        """Brokers whose metadata differs from the tree."""
        topics = set(self._tree.children("/brokers/topics"))
        for node in self._nodes:
            assert node.broker is not None
            image = node.broker.image
            if set(image.topics) != topics:
                return f"{node.host} knows the topics {sorted(image.topics)}, there are {sorted(topics)}"
            if set(image.brokers) != set(self._by_id):
                return f"{node.host} knows the brokers {sorted(image.brokers)}"
            controller = self._tree.get("/controller")
            if controller is None or json.loads(controller.data)["brokerid"] != image.controller_id:
                return f"{node.host} takes broker {image.controller_id} for the controller"
            for topic in image.topics.values():
                settings = self._settings(topic.name)
                if dict(topic.config) != settings:
                    return f"{node.host} takes the settings of {topic.name} for {dict(topic.config)}, they are {settings}"
                for number, told in enumerate(topic.partitions):
                    state = self.state((topic.name, number))
                    if state is None or (told.leader, told.leader_epoch) != (state.leader, state.leader_epoch):
                        return f"{node.host} says that {topic.name}-{number} is led by {told.leader} in epoch {told.leader_epoch}"
        return ""
