"""The controller of a broker that is alone, on the real store: write, publish, answer (F59-F62)."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from ottla.broker.controller.standalone_controller import StandaloneController
from ottla.broker.metadata.identity import resolve_identity
from ottla.broker.metadata.local_metadata import LocalMetadata
from ottla.cluster.image import ClusterImage, Endpoint, TopicImage
from ottla.cluster.requests import ConfigAlteration, ConfigChange, FoundTopic, NewPartitions, NewTopic
from ottla.cluster.settings import BrokerSettings, SettingsError
from ottla.errors import ErrorCode, KafkaError
from ottla.ports import Change, Create, Delete, SetData, StoreError, StoreUnavailable
from ottla.runtime.embedded_store import EmbeddedStore
from ottla.sim.kernel.machine import SeededRandom


class FixedClock:
    def now_ms(self) -> int:
        return 1_700_000_000_000

    def monotonic(self) -> float:
        return 0.0


class FailingStore:
    """A store that refuses writes while it has an error, as one with a full disk."""

    def __init__(self, store: EmbeddedStore) -> None:
        self._store = store
        self.error: StoreError | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def multi(self, changes: Sequence[Change]) -> list[str]:
        if self.error is not None:
            raise self.error
        return await self._store.multi(changes)


class Life:
    """One life of a broker on a store that outlives it."""

    def __init__(self, path: Path, **properties: Any) -> None:
        self.settings = BrokerSettings.parse({name.replace("_", "."): value for name, value in properties.items()})
        self.store = EmbeddedStore.open(str(path / "m.db"))
        self.images: list[ClusterImage] = []
        self.failing = FailingStore(self.store)
        self.on_image: Callable[[ClusterImage], None] = self.images.append
        metadata = LocalMetadata(self.settings, 1)
        metadata.endpoints = (Endpoint("PLAINTEXT", "h", 9092),)
        self.controller = StandaloneController(
            self.failing,
            metadata,
            FixedClock(),
            SeededRandom(random.Random(5)),
            lambda image: self.on_image(image),
        )

    async def __aenter__(self) -> Life:
        await self.controller.start()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.store.close()

    async def json(self, path: str) -> object:
        node = await self.store.get(path)
        assert node is not None, path
        return json.loads(node.data)


def run(test: Callable[[], Awaitable[None]]) -> None:
    async def main() -> None:
        await test()

    asyncio.run(main())


def test_a_first_start_writes_the_tree_kafka_would_know(tmp_path: Path) -> None:
    async def test() -> None:
        async with Life(tmp_path, broker_rack="r1") as life:
            for path in ("/brokers/topics", "/config/topics", "/admin/delete_topics", "/isr_change_notification", "/consumers"):
                assert await life.store.get(path) is not None, path
            assert await life.json("/controller") == {
                "version": 2,
                "brokerid": 1,
                "timestamp": "1700000000000",
                "kraftControllerEpoch": -1,
            }
            epoch = await life.store.get("/controller_epoch")
            assert epoch is not None
            assert epoch.data == b"1"
            registration = await life.store.get("/brokers/ids/1")
            assert registration is not None
            (image,) = life.images
            broker = image.brokers[1]
            assert (broker.epoch, broker.rack) == (registration.czxid, "r1")
            assert broker.endpoints == (Endpoint("PLAINTEXT", "h", 9092),)
            assert await life.json("/cluster/id") == {"version": "1", "id": image.cluster_id}
            assert len(image.cluster_id) == 22

    run(test)


def test_everything_is_there_after_a_restart_under_higher_epochs(tmp_path: Path) -> None:
    async def test() -> None:
        async with Life(tmp_path) as life:
            await life.controller.topic_requests.create([NewTopic("a", 2, config={"retention.ms": "5"}), NewTopic("gone")])
            await life.controller.topic_requests.delete(["gone"])
            await life.controller.topic_requests.create_partitions([NewPartitions("a", 3)])
            await life.controller.config_requests.alter([ConfigAlteration(4, "", [ConfigChange(0, "message.max.bytes", "9")])])
            before = life.controller.state.image
        async with Life(tmp_path) as life:
            after = life.controller.state.image
            assert after.cluster_id == before.cluster_id
            assert after.brokers[1].epoch > before.brokers[1].epoch
            a, b = before.topics["a"], after.topics["a"]
            assert set(after.topics) == {"a"}
            assert (b.topic_id, b.config, len(b.partitions)) == (a.topic_id, a.config, 3)
            assert [part.leader_epoch for part in b.partitions] == [1, 1, 1]
            assert [part.leader for part in b.partitions] == [1, 1, 1]
            assert life.controller.state.settings.int("message.max.bytes") == 9
            epoch = await life.store.get("/controller_epoch")
            assert epoch is not None
            assert epoch.data == b"2"
            state = await life.store.get("/brokers/topics/a/partitions/2/state")
            assert state is not None
            assert state.version == b.partitions[2].partition_epoch

    run(test)


def test_a_topic_is_published_after_the_write_and_before_the_answer(tmp_path: Path) -> None:
    async def test() -> None:
        async with Life(tmp_path) as life:
            shown: list[bool] = []

            def on_image(image: ClusterImage) -> None:
                shown.append("/brokers/topics/a" in life.store._tree.entries)

            life.on_image = on_image
            (topic,) = await life.controller.topic_requests.create([NewTopic("a")])
            assert isinstance(topic, TopicImage)
            assert shown == [True]

    run(test)


def test_a_failed_write_leaves_the_image_and_is_answered_with_an_error(tmp_path: Path) -> None:
    async def test() -> None:
        async with Life(tmp_path) as life:
            await life.controller.topic_requests.create([NewTopic("a")])
            image = life.controller.state.image
            life.failing.error = StoreUnavailable("disk full")
            outcomes = await life.controller.topic_requests.create([NewTopic("b"), NewTopic("a")])
            assert [outcome.code for outcome in outcomes if isinstance(outcome, KafkaError)] == [
                ErrorCode.KAFKA_STORAGE_ERROR,
                ErrorCode.TOPIC_ALREADY_EXISTS,
            ]
            (outcome,) = await life.controller.topic_requests.delete(["a"])
            assert isinstance(outcome, KafkaError)
            (altered,) = await life.controller.config_requests.alter(
                [ConfigAlteration(2, "a", [ConfigChange(0, "retention.ms", "9")])]
            )
            assert altered is not None
            with pytest.raises(KafkaError):
                await life.controller.producer_ids.next()
            assert life.controller.state.image is image
            life.failing.error = None
            assert await life.controller.producer_ids.next() == 0

    run(test)


def test_c02_a_controller_that_was_replaced_can_write_nothing(tmp_path: Path) -> None:
    async def test() -> None:
        async with Life(tmp_path) as life:
            await life.controller.topic_requests.create([NewTopic("a")])
            # Another broker became the controller meanwhile.
            await life.store.multi([SetData("/controller_epoch", b"9")])
            (created,) = await life.controller.topic_requests.create([NewTopic("b")])
            (deleted,) = await life.controller.topic_requests.delete(["a"])
            for outcome in (created, deleted):
                assert isinstance(outcome, KafkaError)
                assert outcome.code is ErrorCode.NOT_CONTROLLER
            with pytest.raises(KafkaError, match="NOT_CONTROLLER"):
                await life.controller.producer_ids.next()
            assert await life.store.children("/brokers/topics") == ["a"]
            assert set(life.controller.state.image.topics) == {"a"}

    run(test)


def test_changes_are_done_one_at_a_time(tmp_path: Path) -> None:
    async def test() -> None:
        async with Life(tmp_path) as life:
            results = await asyncio.gather(*(life.controller.topic_requests.create([NewTopic("same")]) for _ in range(5)))
            created = [outcome for (outcome,) in results if isinstance(outcome, TopicImage)]
            assert len(created) == 1
            assert len(life.controller.state.image.topics) == 1

    run(test)


def test_validate_only_writes_nothing(tmp_path: Path) -> None:
    async def test() -> None:
        async with Life(tmp_path) as life:
            zxid = life.store._tree.zxid
            (topic,) = await life.controller.topic_requests.create([NewTopic("a", 4)], validate_only=True)
            assert isinstance(topic, TopicImage)
            assert life.store._tree.zxid == zxid
            assert len(life.images) == 1

    run(test)


def test_a_generated_broker_id_is_above_the_reserved_ones(tmp_path: Path) -> None:
    async def test() -> None:
        store = EmbeddedStore.open(str(tmp_path / "m.db"))
        settings = BrokerSettings.parse({})
        first = await resolve_identity(store, settings, SeededRandom(random.Random(5)))
        assert first[0] == 1001
        # A number that nobody kept, because the start failed, is given again; several brokers never get the same.
        assert (await resolve_identity(store, settings, SeededRandom(random.Random(5))))[0] == 1001
        of_a_cluster = BrokerSettings.parse({"zookeeper.connect": "localhost:2181"})
        for number in (1001, 1002):
            assert (await resolve_identity(store, of_a_cluster, SeededRandom(random.Random(5))))[0] == number
        again = await resolve_identity(store, settings, SeededRandom(random.Random(5)), *first)
        assert again == first
        given = await resolve_identity(store, BrokerSettings.parse({"broker.id": "7"}), SeededRandom(random.Random(5)))
        assert given[0] == 7
        await store.close()

    run(test)


def test_the_cluster_id_of_the_data_directories_is_kept_and_another_refused(tmp_path: Path) -> None:
    async def test() -> None:
        store = EmbeddedStore.open(str(tmp_path / "m.db"))
        settings = BrokerSettings.parse({"broker.id": "3"})
        identity = await resolve_identity(store, settings, SeededRandom(random.Random(5)), 3, "a" * 22)
        assert identity[1] == "a" * 22
        with pytest.raises(SettingsError) as caught:
            await resolve_identity(store, settings, SeededRandom(random.Random(5)), 4, "b" * 22)
        assert len(caught.value.problems) == 2
        assert "belong to the cluster bbb" in caught.value.problems[0]
        assert "belong to broker 4" in caught.value.problems[1]
        await store.close()

    run(test)


def test_topics_of_a_stopped_kafka_are_adopted_once(tmp_path: Path) -> None:
    async def test() -> None:
        found = [FoundTopic("old", b"\x01" * 16, frozenset({0, 2}))]
        async with Life(tmp_path) as life:
            warnings = await life.controller.adopt_topics(found)
            assert "without the partitions 1" in warnings[0]
            assert len(life.controller.state.image.topics["old"].partitions) == 3
            assert life.images[-1] is life.controller.state.image
            await life.controller.topic_requests.delete(["old"])
        async with Life(tmp_path) as life:
            # The directories of a deleted topic may still lie there after a crash: they are no find.
            assert await life.controller.adopt_topics(found) == []
            assert life.controller.state.image.topics == {}

    run(test)


def test_nodes_that_older_versions_leave_out_are_added(tmp_path: Path) -> None:
    async def test() -> None:
        async with Life(tmp_path) as life:
            await life.controller.topic_requests.create([NewTopic("a", 2)])
            await life.store.multi(
                [
                    Delete("/config/topics/a"),
                    Delete("/brokers/topics/a/partitions/1/state"),
                    SetData("/brokers/topics/a", b'{"version":1,"partitions":{"1":[1],"0":[1]}}'),
                    Create("/brokers/topics/b", b'{"version":2,"partitions":{"0":[1]}}'),
                ]
            )
        async with Life(tmp_path) as life:
            topics = life.controller.state.image.topics
            assert [part.leader for topic in topics.values() for part in topic.partitions] == [1, 1, 1]
            ids = {topic.topic_id for topic in topics.values()}
            assert len(ids) == 2
        async with Life(tmp_path) as life:
            assert {topic.topic_id for topic in life.controller.state.image.topics.values()} == ids, "ids are kept once given"
            (outcome,) = await life.controller.config_requests.alter(
                [ConfigAlteration(2, "b", [ConfigChange(0, "retention.ms", "9")])]
            )
            assert outcome is None
            assert not isinstance((await life.controller.topic_requests.delete(["a"]))[0], KafkaError)

    run(test)
