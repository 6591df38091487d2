"""Replicas that are offline because a data directory of a running broker failed (L06).

A broker reports a failed directory by a node under /log_dir_event_notification. The controller sends that broker its whole state
again; the LeaderAndIsr response names the replicas that are offline, and other replicas take over their leaderships.
"""

from __future__ import annotations

import logging
from collections.abc import Collection
from typing import Any

from ottla.broker.controller.controller_channels import ControlRequestSender
from ottla.broker.controller.controller_state import ControllerState
from ottla.broker.controller.metadata_writer import MetadataWriter
from ottla.broker.metadata.tree import each
from ottla.cluster import znodes
from ottla.cluster.broker_changes import with_offline
from ottla.cluster.image import BrokerImage
from ottla.errors import ErrorCode
from ottla.ports import Delete, MetadataStore

logger = logging.getLogger(__name__)


class OfflineReplicas:
    def __init__(
        self, store: MetadataStore, state: ControllerState, writer: MetadataWriter, sender: ControlRequestSender
    ) -> None:
        self._store = store
        self._state = state
        self._writer = writer
        self._sender = sender

    async def read_log_dir_events(self) -> None:
        names = await self._store.children(znodes.LOG_DIR_EVENTS)
        if not names:
            return
        paths = [f"{znodes.LOG_DIR_EVENTS}/{name}" for name in names]
        nodes = await each(paths, self._store.get)
        async with self._state.lock:
            for broker_id in {znodes.decode_log_dir_event(node.data) for node in nodes if node is not None}:
                if broker_id is not None:
                    self._sender.send_everything(broker_id)
            deletions = [Delete(path) for path, node in zip(paths, nodes, strict=True) if node]
            await self._writer.write([*self._state.fence(), *deletions])

    def responded(self, broker: BrokerImage, api_name: str, response: Any) -> None:
        """A broker answered a control request."""
        if api_name != "leader_and_isr" or response.error_code != ErrorCode.NONE:
            return
        image = self._state.image
        offline: set[tuple[str, int]] = set()
        online: set[tuple[str, int]] = set()
        for topic in response.topics:
            name = image.topic_names.get(bytes(topic.topic_id))
            for partition in topic.partition_errors if name is not None else ():
                assert name is not None
                if partition.error_code == ErrorCode.KAFKA_STORAGE_ERROR:
                    offline.add((name, partition.partition_index))
                elif partition.error_code == ErrorCode.NONE:
                    online.add((name, partition.partition_index))
        if offline or any(broker.id in image.topics[name].partitions[number].offline for name, number in online):
            self._state.spawn(self._update(broker, offline, online))

    async def _update(
        self, broker: BrokerImage, failed: Collection[tuple[str, int]], online: Collection[tuple[str, int]]
    ) -> None:
        state = self._state
        async with state.lock:
            known = state.image.brokers.get(broker.id)
            if not state.is_active or known is None or known.epoch != broker.epoch:
                return
            before = {
                (topic.name, number)
                for topic in state.image.topics.values()
                for number, partition in enumerate(topic.partitions)
                if broker.id in partition.offline
            }
            after = (before | set(failed)) - set(online)
            if after != before:
                logger.warning("Broker %d has %d offline replicas in failed log directories", broker.id, len(after))
                await self._writer.elect(with_offline(state.image, broker.id, after))
