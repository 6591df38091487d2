"""Reassignments and preferred leader elections that tools request by znodes (as Kafka's tools before KIP-455 and KIP-460)."""

from __future__ import annotations

import logging

from ottla.broker.controller.controller_state import ControllerState
from ottla.broker.controller.partition_requests import PartitionRequests, Reassignment
from ottla.broker.controller.tree_watcher import TreeWatcher
from ottla.cluster import znodes
from ottla.cluster.reassignment import is_moving, target
from ottla.ports import MetadataStore, Node, SetData

logger = logging.getLogger(__name__)


class AdminZnodes:
    def __init__(self, store: MetadataStore, state: ControllerState, partitions: PartitionRequests, watcher: TreeWatcher) -> None:
        self._store = store
        self._state = state
        self._partitions = partitions
        self._watcher = watcher
        self._reassigning: dict[tuple[str, int], tuple[int, ...]] = {}
        """Reassignments of the znode that are in progress: the znode names them until they are done."""

    @property
    def has_reassignments(self) -> bool:
        return bool(self._reassigning)

    def end_term(self) -> None:
        self._reassigning.clear()

    async def read(self) -> None:
        node = await self._store.get(znodes.REASSIGN_PARTITIONS)
        if node is not None:
            await self._reassign(node)
        node = await self._store.get(znodes.PREFERRED_ELECTION)
        if node is not None:
            requested = znodes.decode_preferred_election(node.data)
            for name, number, error in await self._partitions.elect_leaders(requested, unclean=False):
                if error is not None:
                    logger.info("%s: %s-%d: %s", znodes.PREFERRED_ELECTION, name, number, error.detail)
            await self._watcher.remove([znodes.PREFERRED_ELECTION], node.version)

    async def _reassign(self, node: Node) -> None:
        """Tools read the progress from the znode: it names the reassignments in progress, and goes with the last of them."""
        requested = znodes.decode_reassignment(node.data)
        if not requested:
            logger.warning("%s names no partition, or cannot be parsed", znodes.REASSIGN_PARTITIONS)
        new = [key for key, brokers in requested.items() if self._reassigning.get(key) != brokers]
        asked = [Reassignment(topic, partition, requested[topic, partition]) for topic, partition in new]
        errors = await self._partitions.alter_reassignments(asked) if asked else ()
        for (topic, partition), error in zip(new, errors, strict=True):
            if error is not None:
                logger.warning("%s: %s-%d: %s", znodes.REASSIGN_PARTITIONS, topic, partition, error.detail)
        self._reassigning = {key: brokers for key, brokers in requested.items() if self._is_in_progress(key, brokers)}
        if not self._reassigning:
            await self._watcher.remove([znodes.REASSIGN_PARTITIONS], node.version)
        elif self._reassigning != requested:
            data = znodes.encode_reassignment(self._reassigning)
            await self._watcher.write([SetData(znodes.REASSIGN_PARTITIONS, data, node.version)])

    def _is_in_progress(self, key: tuple[str, int], brokers: tuple[int, ...]) -> bool:
        topic = self._state.image.topics.get(key[0])
        if topic is None or not 0 <= key[1] < len(topic.partitions):
            return False
        partition = topic.partitions[key[1]]
        return is_moving(partition) and target(partition) == brokers
