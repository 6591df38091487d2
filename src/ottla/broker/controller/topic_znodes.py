"""Topics that other brokers or tools create, extend or remove, as their nodes under /brokers/topics show (F59).

Owns the watches of topics during a term.

1. The nodes are compared with the image under the controller's lock: none of its own changes is half written then.
2. A topic whose node cannot be read is left alone; the others are processed.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection

from ottla.broker.controller.controller_state import ControllerState
from ottla.broker.controller.metadata_writer import MetadataWriter
from ottla.broker.controller.topic_deletion import TopicDeletion
from ottla.broker.metadata.tree import Loaded, each, load_topics
from ottla.cluster import znodes
from ottla.cluster.broker_changes import with_elections
from ottla.cluster.controller_term import MetadataUpdate
from ottla.cluster.tree_changes import state_changes
from ottla.ports import MetadataStore, Node, Random, StoreError

logger = logging.getLogger(__name__)


class TopicZnodes:
    def __init__(
        self,
        store: MetadataStore,
        state: ControllerState,
        writer: MetadataWriter,
        random: Random,
        deletion: TopicDeletion,
        read_soon: Callable[[], None],
    ) -> None:
        self._store = store
        self._state = state
        self._writer = writer
        self._random = random
        self._deletion = deletion
        self._read_soon = read_soon
        self._watched: set[str] = set()
        self._touched: set[str] = set()
        """Topics whose node may have changed since it was last compared with the image."""

    def end_term(self) -> None:
        for name in sorted(self._watched):
            self._store.unwatch(znodes.topic_path(name), self._touch)
        self._watched.clear()
        self._touched.clear()

    def _touch(self, path: str) -> None:
        self._touched.add(path.rpartition("/")[2])
        self._read_soon()

    async def read(self) -> None:
        names = set(await self._store.children(znodes.TOPICS))
        if not self._state.is_active:
            return
        for name in sorted(self._watched - names):
            self._store.unwatch(znodes.topic_path(name), self._touch)
        for name in sorted(names - self._watched):
            self._store.watch(znodes.topic_path(name), self._touch)
            self._touched.add(name)
        self._watched = set(names)
        # Nodes that a deletion should have removed and did not.
        self._touched |= self._deletion.take_ended()
        touched, self._touched = self._touched & names, set()
        try:
            nodes = await each([znodes.topic_path(name) for name in sorted(touched)], self._store.get)
            changed = [name for name, node in zip(sorted(touched), nodes, strict=True) if self._is_changed(name, node)]
            removed = [name for name in self._state.image.topics if name not in names]
            if changed or removed:
                await self._apply(changed, removed)
        except BaseException:
            self._touched |= touched
            raise

    def _is_changed(self, name: str, node: Node | None) -> bool:
        topic = self._state.image.topics.get(name)
        if node is None or topic is None:
            return node is not None and name not in self._deletion.deleting
        try:
            topic_id, count = znodes.topic_outline(name, node.data)
        except StoreError as error:
            logger.error("Ignoring an invalid change of the znode of topic %s: %s", name, error)
            return False
        if topic_id not in (None, topic.topic_id):
            logger.error("Ignoring the znode of topic %s: its topic id changed. Delete the topic, then create it again", name)
            return False
        return count > len(topic.partitions)

    async def _apply(self, changed: Collection[str], removed: Collection[str]) -> None:
        state = self._state
        async with state.lock:
            present = set(await self._store.children(znodes.TOPICS))
            term, image = state.term, state.image
            if term is None:
                return
            lost = [name for name in removed if name in image.topics and name not in present]
            if lost:
                # As in Kafka, the replicas keep their records: the znodes were removed past DeleteTopics.
                logger.warning("Forgetting topics whose znodes were removed: %s", ", ".join(lost))
                state.image = image = image.with_topics((), lost)
            names = [name for name in changed if name in present and name not in self._deletion.deleting]
            loaded = Loaded(image)
            found = await load_topics(self._store, names, term.epoch, self._random, loaded, known=image.topics)
            topics = [
                topic
                for topic in found
                if topic.name not in image.topics or len(topic.partitions) > len(image.topics[topic.name].partitions)
            ]
            if not topics:
                return
            logger.info("Topics created or extended in the metadata tree: %s", ", ".join(topic.name for topic in topics))
            before = image.with_topics(topics)
            after = with_elections(before, state.unclean_allowed, topics)
            changes = [*state.fence(), *loaded.repairs, *state_changes(before, after, term.epoch)]
            await self._writer.commit(MetadataUpdate(changes, after), created=loaded.created)
