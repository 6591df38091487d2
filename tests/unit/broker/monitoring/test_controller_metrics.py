"""What the controller tells of its elections and of the cluster."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from ottla.broker.controller.controller_state import ControllerState
from ottla.broker.monitoring.controller import ControllerCollector
from ottla.cluster.controller_term import ControllerTerm
from ottla.cluster.image import ClusterImage, PartitionImage, TopicImage
from ottla.cluster.settings import BrokerSettings
from ottla.runtime.loop import run


def image(*partitions: PartitionImage) -> ClusterImage:
    return ClusterImage("c", topics={"t": TopicImage("t", b"i" * 16, partitions)})


def values(collector: ControllerCollector) -> dict[str, float]:
    return {f"{family.name}{labels}": value for family in collector() for labels, value in family.samples}


def test_elections_are_counted_and_unclean_ones_apart() -> None:
    async def case() -> None:
        state = ControllerState(1, BrokerSettings.parse({"listeners": "PLAINTEXT://127.0.0.1:0"}))
        collector = ControllerCollector(state)
        assert state.on_change is not None
        led = PartitionImage(leader=1, leader_epoch=0, isr=(1, 2), replicas=(1, 2, 3))
        began = asyncio.get_running_loop().time()
        before = image(led, led)
        clean = image(replace(led, leader=2, isr=(2,)), led)
        state.on_change(image(), before, began)  # a new topic is no election
        state.on_change(before, before, began)
        state.on_change(before, clean, began)
        state.on_change(clean, image(replace(led, leader=3, isr=(3,), recovering=True), led), began)
        state.on_change(before, image(replace(led, leader=-1), led), began)  # nobody was elected
        found = values(collector)
        assert found["kafka_controller_controllerstats_uncleanleaderelections_total"] == 1
        assert found["kafka_controller_controllerstats_leaderelectionrateandtimems_count"] == 2

    run(case())


def test_changes_that_wait_for_others_are_timed() -> None:
    async def case() -> None:
        state = ControllerState(1, BrokerSettings.parse({"listeners": "PLAINTEXT://127.0.0.1:0"}))
        collector = ControllerCollector(state)
        loop = asyncio.get_running_loop()

        async def change() -> None:
            async with state.lock:
                pass

        async with state.lock:
            second = loop.create_task(change())
            await asyncio.sleep(0)  # it waits
            begun = loop.time()
            while loop.time() == begun:
                await asyncio.sleep(0)
        await second
        found = values(collector)
        assert found["kafka_controller_controllereventmanager_eventqueuetimems_count"] == 2
        assert collector.waited_s.sum > 0

    run(case())


def test_a_broker_that_is_not_the_controller_tells_nothing_of_the_cluster() -> None:
    async def case() -> None:
        state = ControllerState(1, BrokerSettings.parse({"listeners": "PLAINTEXT://127.0.0.1:0"}))
        collector = ControllerCollector(state)
        led = PartitionImage(leader=2, leader_epoch=0, isr=(2,), replicas=(1, 2))
        state.image = image(led, replace(led, leader=-1))
        found = values(collector)
        assert found["kafka_controller_kafkacontroller_activecontrollercount"] == 0
        assert found["kafka_controller_kafkacontroller_topicstodeletecount"] == 0
        assert found["kafka_controller_kafkacontroller_offlinepartitionscount"] == 0
        state.term = ControllerTerm(1, 1, 0)
        state.deleting.add("gone")
        found = values(collector)
        assert found["kafka_controller_kafkacontroller_activecontrollercount"] == 1
        assert found["kafka_controller_kafkacontroller_topicstodeletecount"] == 1
        assert found["kafka_controller_kafkacontroller_offlinepartitionscount"] == 1
        assert found["kafka_controller_kafkacontroller_preferredreplicaimbalancecount"] == 2
        assert found["kafka_controller_kafkacontroller_globalpartitioncount"] == 2

    run(case())
