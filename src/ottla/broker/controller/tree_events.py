"""What others write in the tree, and the controller has to notice: brokers, topics, failed directories, old tools' wishes (F59).

Owns: the watches of a term of office, and the deletion of topics, which anybody may ask for by a mark in the tree.
Never: believes a watch. A watch says where to look; what is there is read, and held against the image.

1. What this controller wrote itself shows no difference to its image, so nothing comes of the watches it fires.
2. The tree is compared with the image under the lock of changes: none of this controller's own is half done then.
3. A topic is marked for deletion before its replicas are told to go, and its nodes are removed after: whoever takes over
   meanwhile goes on with it (C09).
4. A topic whose node makes no sense is left alone: it is nobody's, and the others go on.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Iterable, Sequence
from typing import Any, Final

from ottla.broker.controller.controller_channels import Heard
from ottla.broker.controller.controller_host import failed_outcomes, to_its_end
from ottla.broker.controller.office import OfficeHost
from ottla.broker.controller.partition_requests import Reassignment, alter_reassignments, elect_leaders
from ottla.broker.metadata.tree import Loaded, each, load_brokers, load_topics
from ottla.cluster import znodes
from ottla.cluster.broker_changes import settled, with_brokers
from ottla.cluster.controller import Decision, TopicOutcome
from ottla.cluster.image import TopicImage
from ottla.cluster.reassignment import is_moving, target
from ottla.cluster.topic_changes import delete_changes
from ottla.cluster.tree_changes import pieces, state_changes
from ottla.errors import KafkaError
from ottla.ports import BadVersion, Change, Create, Delete, Node, NoNode, SetData, StoreError

logger = logging.getLogger(__name__)

_AGAIN_S: Final = 1.0
_AGAIN_MAX_S: Final = 60.0
_WATCHED: Final = (
    znodes.BROKER_IDS,
    znodes.TOPICS,
    znodes.DELETE_TOPICS,
    znodes.LOG_DIR_EVENTS,
    znodes.PREFERRED_ELECTION,
    znodes.REASSIGN_PARTITIONS,
)


class WatchingHost(OfficeHost):
    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._look = asyncio.Event()
        self._watched_topics: set[str] = set()
        self._touched_topics: set[str] = set()
        """Whose node may have changed since it was last held against the image."""
        self._dying: set[str] = set()
        """Topics that are gone from the image, and whose nodes are about to go."""
        self._wished: dict[tuple[str, int], tuple[int, ...]] = {}
        """Reassignments asked for in the tree, which stay there until they are done."""

    def _watch_tree(self) -> None:
        for path in _WATCHED:
            self._store.watch(path, lambda _: self._look.set())

    def _stop_watching_topics(self) -> None:
        for name in sorted(self._watched_topics):
            self._store.unwatch(znodes.topic_path(name), self._topic_touched)
        self._watched_topics.clear()
        self._touched_topics.clear()
        self._dying.clear()
        self._wished.clear()

    def _topic_touched(self, path: str) -> None:
        self._touched_topics.add(path.rpartition("/")[2])
        self._look.set()

    async def _govern(self) -> None:
        """While in office: look what changed in the tree, whenever it may have."""
        pause_s = _AGAIN_S
        while True:
            await self._look.wait()
            self._look.clear()
            if self._controller is None:
                continue
            try:
                await self._look_at_brokers()
                await self._look_at_topics()
                await self._look_at_deletions()
                await self._look_at_log_dirs()
                await self._look_at_old_requests()
                pause_s = _AGAIN_S
            except (StoreError, KafkaError) as error:
                logger.warning("the controller could not follow a change: %s", error)
                asyncio.get_running_loop().call_later(pause_s, self._look.set)
                pause_s = min(2 * pause_s, _AGAIN_MAX_S)
            except Exception:
                logger.exception("the controller could not follow a change")
                await self._give_up()

    # Brokers

    async def _look_at_brokers(self) -> None:
        async with self._lock:
            brokers = await load_brokers(self._store)
            if self._controller is None or brokers == dict(self.image.brokers):
                return
            known = self.image.brokers
            gone = [number for number in known if number not in brokers or brokers[number].epoch != known[number].epoch]
            if gone:
                logger.info("brokers that are gone: %s", ", ".join(map(str, gone)))
                # One that is back already had left all the same: what it did not fsync may be lost, so it starts from behind.
                await self._settle(with_brokers(self.image, {n: b for n, b in known.items() if n not in gone}))
            arrived = [number for number in brokers if number not in self.image.brokers]
            if arrived:
                logger.info("brokers that are new: %s", ", ".join(map(str, arrived)))
            await self._settle(with_brokers(self.image, brokers))

    async def _look_at_log_dirs(self) -> None:
        names = await self._store.children(znodes.LOG_DIR_EVENTS)
        if not names:
            return
        paths = [f"{znodes.LOG_DIR_EVENTS}/{name}" for name in names]
        nodes = await each(paths, self._store.get)
        async with self._lock:
            for number in {znodes.decode_log_dir_event(node.data) for node in nodes if node is not None}:
                if number is not None:
                    # Told everything again, the broker says what it cannot do.
                    self._channels.give(self._everything_for(number))
            await self._write([*self._fence(), *(Delete(path) for path, node in zip(paths, nodes, strict=True) if node)])

    # Topics that others make, grow or remove

    async def _look_at_topics(self) -> None:
        names = set(await self._store.children(znodes.TOPICS))
        if self._controller is None:
            return
        for name in sorted(self._watched_topics - names):
            self._store.unwatch(znodes.topic_path(name), self._topic_touched)
        for name in sorted(names - self._watched_topics):
            self._store.watch(znodes.topic_path(name), self._topic_touched)
            self._touched_topics.add(name)
        self._watched_topics = set(names)
        touched, self._touched_topics = self._touched_topics & names, set()
        try:
            nodes = await each([znodes.topic_path(name) for name in sorted(touched)], self._store.get)
            news = [name for name, node in zip(sorted(touched), nodes, strict=True) if self._is_news(name, node)]
            gone = [name for name in self.image.topics if name not in names]
            if news or gone:
                await self._follow_topics(news, gone)
        except BaseException:
            self._touched_topics |= touched
            raise

    def _is_news(self, name: str, node: Node | None) -> bool:
        topic = self.image.topics.get(name)
        if node is None or topic is None:
            return node is not None and name not in self._dying
        try:
            topic_id, count = znodes.topic_outline(name, node.data)
        except StoreError as error:
            logger.error("somebody spoiled the node of a topic, which stays as it is known here: %s", error)
            return False
        if topic_id not in (None, topic.topic_id):
            logger.error("somebody put another topic in the place of %s; delete it properly, then create it", name)
            return False
        return count > len(topic.partitions)

    async def _follow_topics(self, news: Collection[str], gone: Collection[str]) -> None:
        async with self._lock:
            present = set(await self._store.children(znodes.TOPICS))
            controller, image = self._controller, self.image
            if controller is None:
                return
            lost = [name for name in gone if name in image.topics and name not in present]
            if lost:
                # As Kafka: whoever does that knows what he does. The replicas stay where they are.
                logger.warning("somebody removed the nodes of %s: they are forgotten", ", ".join(lost))
                self.image = image = image.with_topics((), lost)
            names = [name for name in news if name in present and name not in self._dying]
            loaded = Loaded(image)
            found = await load_topics(self._store, names, controller.epoch, self._random, loaded, known=image.topics)
            changed = [topic for topic in found if topic.name not in image.topics or self._grew(topic)]
            if not changed:
                return
            logger.info("topics that others made or changed: %s", ", ".join(topic.name for topic in changed))
            before = image.with_topics(changed)
            after = settled(before, self.unclean_allowed, changed)
            changes = [*self._fence(), *loaded.repairs, *state_changes(before, after, controller.epoch)]
            await self._perform(Decision(changes, after), created=loaded.created)

    def _grew(self, topic: TopicImage) -> bool:
        return len(topic.partitions) > len(self.image.topics[topic.name].partitions)

    # Deleting topics

    async def delete_topics(self, asked: Sequence[str | bytes]) -> list[TopicOutcome]:
        return await self._delete_topics(asked)

    @to_its_end
    async def _delete_topics(self, asked: Sequence[str | bytes]) -> list[TopicOutcome]:
        async with self._lock:
            _, outcomes = self._office().delete_topics(self.image, self.settings, asked)
            doomed = [topic for topic in outcomes if isinstance(topic, TopicImage)]
            if not doomed:
                return outcomes
            marks = [Create(f"{znodes.DELETE_TOPICS}/{topic.name}") for topic in doomed]
            try:
                await self._let_topics_go(doomed, marks)
            except StoreError as error:
                return failed_outcomes(outcomes, error)
            told = self._last_told()
        await self._finish_deletion(doomed, told)
        return outcomes

    async def _let_topics_go(self, doomed: Sequence[TopicImage], marks: Sequence[Change]) -> None:
        names = [topic.name for topic in doomed]
        await self._perform(Decision([*self._fence(), *marks], self.image.with_topics((), names)))
        self._dying.update(names)

    async def _look_at_deletions(self) -> None:
        if not await self._store.children(znodes.DELETE_TOPICS):
            return
        async with self._lock:
            marked = [name for name in await self._store.children(znodes.DELETE_TOPICS) if name not in self._dying]
            if self._controller is None or not marked:
                return
            doomed = [self.image.topics[name] for name in marked if name in self.image.topics]
            if doomed and not self.settings.bool("delete.topic.enable"):
                logger.warning("topics are marked for deletion, which delete.topic.enable forbids: %s", ", ".join(marked))
                doomed = []
            kept = {topic.name for topic in doomed}
            await self._drop_requests([f"{znodes.DELETE_TOPICS}/{name}" for name in marked if name not in kept])
            if doomed:
                logger.info("topics that others marked for deletion: %s", ", ".join(kept))
                await self._let_topics_go(doomed, ())
                self._errand(self._finish_deletion(doomed, self._last_told()))

    async def _finish_deletion(self, doomed: Sequence[TopicImage], told: Collection[Heard]) -> None:
        """When the replicas are gone from those who live (who does not will learn it at its return), the nodes go too."""
        await self._heard_by_all(told)
        async with self._lock:
            if self._controller is None:
                return  # the next controller finds the mark
            try:
                for topic in doomed:
                    await self._remove_nodes([*delete_changes(topic), Delete(f"{znodes.DELETE_TOPICS}/{topic.name}")])
            finally:
                names = {topic.name for topic in doomed}
                self._dying -= names
                # Should some of it still be there: it is found again, mark and all.
                self._touched_topics |= names

    async def _remove_nodes(self, deletions: Sequence[Change]) -> None:
        try:
            for piece in pieces([*self._fence(), *deletions], self._store.multi_bytes_max):
                await self._store.multi(piece)
        except (NoNode, BadVersion):
            # Looking at each before would be a thousand questions for the rare case that some are gone already.
            await self._write([*self._fence(), *await self._present(deletions)])

    async def _present(self, deletions: Sequence[Change]) -> list[Change]:
        """Without those that an earlier attempt, or somebody else, has made already."""
        nodes = await each([change.path for change in deletions], self._store.get)
        return [change for change, node in zip(deletions, nodes, strict=True) if node is not None]

    # Wishes of tools from before there were requests for them

    async def _look_at_old_requests(self) -> None:
        node = await self._store.get(znodes.REASSIGN_PARTITIONS)
        if node is not None:
            await self._reassign_as_wished(node)
        node = await self._store.get(znodes.PREFERRED_ELECTION)
        if node is not None:
            wanted = znodes.decode_preferred_election(node.data)
            for name, number, error in await elect_leaders(self, wanted, unclean=False):
                if error is not None:
                    logger.info("%s: %s-%d: %s", znodes.PREFERRED_ELECTION, name, number, error.detail)
            await self._drop_requests([znodes.PREFERRED_ELECTION], node.version)

    async def _reassign_as_wished(self, node: Node) -> None:
        """The node names what is still on its way, and goes when nothing is: so those tools know how far it is."""
        wanted = znodes.decode_reassignment(node.data)
        if not wanted:
            logger.warning("%s names no partition, or cannot be understood", znodes.REASSIGN_PARTITIONS)
        fresh = [key for key, brokers in wanted.items() if self._wished.get(key) != brokers]
        asked = [Reassignment(topic, partition, wanted[topic, partition]) for topic, partition in fresh]
        for (topic, partition), error in zip(fresh, await alter_reassignments(self, asked) if fresh else (), strict=True):
            if error is not None:
                logger.warning("%s: %s-%d: %s", znodes.REASSIGN_PARTITIONS, topic, partition, error.detail)
        self._wished = {key: brokers for key, brokers in wanted.items() if self._is_on_its_way(key, brokers)}
        if not self._wished:
            await self._drop_requests([znodes.REASSIGN_PARTITIONS], node.version)
        elif self._wished != wanted:
            data = znodes.encode_reassignment(self._wished)
            await self._aside([SetData(znodes.REASSIGN_PARTITIONS, data, node.version)])

    def _is_on_its_way(self, key: tuple[str, int], brokers: tuple[int, ...]) -> bool:
        topic = self.image.topics.get(key[0])
        if topic is None or not 0 <= key[1] < len(topic.partitions):
            return False
        partition = topic.partitions[key[1]]
        return is_moving(partition) and target(partition) == brokers

    async def _perform(self, decision: Decision, created: Collection[tuple[str, int]] = ()) -> None:
        await super()._perform(decision, created)
        if self._wished:
            self._look.set()

    async def _drop_requests(self, paths: Iterable[str], version: int = -1) -> None:
        for path in paths:
            await self._aside([Delete(path, version)])

    async def _aside(self, changes: Sequence[Change]) -> None:
        """Write where others write too: if they were faster, there is another look."""
        try:
            await self._store.multi([*self._fence(), *changes])
        except (BadVersion, NoNode):
            asyncio.get_running_loop().call_later(_AGAIN_S, self._look.set)

    def finish_reassignments(self, names: Collection[str]) -> None:
        """Those of these topics whose target is in sync come to their end, in a moment."""
        self._errand(self._arrive(names))

    async def _arrive(self, names: Collection[str]) -> None:
        async with self._lock:
            if self._controller is not None:
                await self._settle(self.image, [self.image.topics[name] for name in names if name in self.image.topics])

    # At the beginning of a term

    async def _doomed_topics(self, loaded: Loaded) -> dict[str, TopicImage]:
        """Topics that were being deleted when the former controller left; they are taken out of the image."""
        marked = await self._store.children(znodes.DELETE_TOPICS)
        doomed = {name: loaded.image.topics[name] for name in marked if name in loaded.image.topics}
        loaded.image = loaded.image.with_topics((), doomed)
        self._dying.update(doomed)
        await self._drop_requests([f"{znodes.DELETE_TOPICS}/{name}" for name in marked if name not in doomed])
        return doomed
