"""Deletes topics from a cluster (F59, C09).

A topic is marked under /admin/delete_topics, by the controller or by a tool. Then its replicas are stopped and deleted by
StopReplica, and then its nodes are removed. A controller that takes over in between finds the mark and goes on.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence

from ottla.broker.controller.controller_state import ControllerState, failed_results
from ottla.broker.controller.metadata_writer import Acknowledgement, MetadataWriter, shielded
from ottla.broker.controller.topic_requests import acknowledged
from ottla.broker.controller.tree_watcher import TreeWatcher
from ottla.broker.metadata.tree import Loaded, each
from ottla.cluster import znodes
from ottla.cluster.controller_term import MetadataUpdate, TopicResult
from ottla.cluster.image import TopicImage
from ottla.cluster.topic_changes import delete_changes
from ottla.cluster.tree_changes import split_changes
from ottla.ports import BadVersion, Change, Create, Delete, MetadataStore, NoNode, StoreError
from ottla.security.quotas import Charge

logger = logging.getLogger(__name__)


class TopicDeletion:
    def __init__(self, store: MetadataStore, state: ControllerState, writer: MetadataWriter, watcher: TreeWatcher) -> None:
        self.deleting = state.deleting
        self._ended: set[str] = set()
        self._store = store
        self._state = state
        self._writer = writer
        self._watcher = watcher

    def end_term(self) -> None:
        self.deleting.clear()
        self._ended.clear()

    def take_ended(self) -> set[str]:
        """Topics whose deletion ended since the last call, complete or not."""
        ended, self._ended = self._ended, set()
        return ended

    @shielded
    async def delete(self, requested: Sequence[str | bytes], charge: Charge | None = None) -> list[TopicResult]:
        """For each topic, by name or id, in order: the topic, deleted now, or a KafkaError."""
        state = self._state
        async with state.lock:
            _, results = state.active_term().delete_topics(state.image, state.settings, requested, charge)
            topics = [topic for topic in results if isinstance(topic, TopicImage)]
            if not topics:
                return results
            marks = [Create(f"{znodes.DELETE_TOPICS}/{topic.name}") for topic in topics]
            try:
                acknowledgements = await self._begin(topics, marks)
            except StoreError as error:
                return failed_results(results, error)
        try:
            await self._finish(topics, acknowledgements)
        except StoreError as error:
            return failed_results(results, error)  # the next controller finds the mark
        return results

    async def read_marks(self) -> None:
        """Delete the topics that a tool has marked."""
        if not await self._store.children(znodes.DELETE_TOPICS):
            return
        state = self._state
        async with state.lock:
            marked = [name for name in await self._store.children(znodes.DELETE_TOPICS) if name not in self.deleting]
            if not state.is_active or not marked:
                return
            topics = [state.image.topics[name] for name in marked if name in state.image.topics]
            if topics and not state.settings.bool("delete.topic.enable"):
                logger.warning("Ignoring topics marked for deletion, delete.topic.enable=false: %s", ", ".join(marked))
                topics = []
            names = {topic.name for topic in topics}
            await self._watcher.remove([f"{znodes.DELETE_TOPICS}/{name}" for name in marked if name not in names])
            if topics:
                logger.info("Deleting topics marked under %s: %s", znodes.DELETE_TOPICS, ", ".join(names))
                acknowledgements = await self._begin(topics, ())
                self._state.spawn(self._finish(topics, acknowledgements))

    async def take_over(self, loaded: Loaded) -> dict[str, TopicImage]:
        """At the start of a term: take topics that an earlier controller was deleting out of the image, and return them."""
        marked = await self._store.children(znodes.DELETE_TOPICS)
        topics = {name: loaded.image.topics[name] for name in marked if name in loaded.image.topics}
        loaded.image = loaded.image.with_topics((), topics)
        self.deleting.update(topics)
        await self._watcher.remove([f"{znodes.DELETE_TOPICS}/{name}" for name in marked if name not in topics])
        return topics

    def finish_later(self, topic: TopicImage, acknowledgements: Collection[Acknowledgement]) -> None:
        self._state.spawn(self._finish([topic], acknowledgements))

    async def _begin(self, topics: Sequence[TopicImage], marks: Sequence[Change]) -> Collection[Acknowledgement]:
        names = [topic.name for topic in topics]
        update = MetadataUpdate([*self._state.fence(), *marks], self._state.image.with_topics((), names))
        acknowledgements = await self._writer.commit(update)
        self.deleting.update(names)
        return acknowledgements

    async def _finish(self, topics: Sequence[TopicImage], acknowledgements: Collection[Acknowledgement]) -> None:
        """Remove the nodes once the brokers that run have deleted their replicas; the others delete them when they return."""
        await acknowledged(acknowledgements)
        async with self._state.lock:
            if not self._state.is_active:
                return  # the next controller finds the mark
            try:
                for topic in topics:
                    await self._remove_nodes([*delete_changes(topic), Delete(f"{znodes.DELETE_TOPICS}/{topic.name}")])
            finally:
                names = {topic.name for topic in topics}
                self.deleting -= names
                self._ended |= names

    async def _remove_nodes(self, deletions: Sequence[Change]) -> None:
        fence = self._state.fence()
        try:
            for part in split_changes([*fence, *deletions], self._store.multi_bytes_max):
                await self._store.multi(part)
        except (NoNode, BadVersion):
            # Some are gone already. To read each node before would be a thousand reads for a rare case.
            nodes = await each([change.path for change in deletions], self._store.get)
            present = [change for change, node in zip(deletions, nodes, strict=True) if node is not None]
            await self._writer.write([*self._state.fence(), *present])
