"""What seeds of the cluster have found, told again step by step in the same virtual world; here a script decides what happens."""

from __future__ import annotations

import asyncio
import gc

import pytest

from ottla.errors import ErrorCode
from ottla.protocol.messages.create_topics import CreatableReplicaAssignment, CreatableTopic, CreateTopicsRequest
from ottla.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from ottla.sim.cluster_world import ClusterWorld


@pytest.fixture(autouse=True)
def _collect():
    gc.collect()
    gc.disable()
    yield
    gc.enable()


class Stage(ClusterWorld):
    """Three brokers, nothing but what the script does to them."""

    def __init__(self, script):
        seed = next(seed for seed in range(1, 1000) if _is_plain(ClusterWorld(seed)))
        super().__init__(seed)
        self._script = script

    async def _main(self):
        await asyncio.gather(*(node.start() for node in self.nodes))
        await self._script(self)
        self.rules.check()
        self._complaints.check()

    async def until(self, condition, what, seconds=60.0):
        end_s = self.loop.time() + seconds
        while not condition():
            assert self.loop.time() < end_s, f"not in {seconds} s: {what}"
            await self._step()

    async def settled(self):
        await self.until(lambda: not self.rules.unsettled(), "settled")

    async def ask(self, api, version, request, code_of, done):
        """Of whoever does it, until it is done; `done` says that an earlier try has done it."""

        async def act(actor):
            while True:
                code = code_of(await actor.any_broker(api, version, request))
                if code in (ErrorCode.NONE, done):
                    return
                assert code == ErrorCode.NOT_CONTROLLER, ErrorCode(code).name
                await actor.backoff()

        await self._alone("admin", act)

    async def create(self, name, replicas):
        topic = CreatableTopic(
            name=name,
            num_partitions=-1,
            replication_factor=-1,
            assignments=[CreatableReplicaAssignment(partition_index=0, broker_ids=replicas)],
        )
        request = CreateTopicsRequest(topics=[topic], timeout_ms=3000)
        exists = ErrorCode.TOPIC_ALREADY_EXISTS
        await self.ask("create_topics", 7, request, lambda found: found.topics[0].error_code, exists)

    async def delete(self, name):
        request = DeleteTopicsRequest(topics=[DeleteTopicState(name=name)], timeout_ms=3000)
        unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        await self.ask("delete_topics", 6, request, lambda found: found.responses[0].error_code, unknown)

    def has(self, node, name):
        return any(each.topic_partition.topic == name for each in node.broker.partitions)


def _is_plain(world):
    world.loop.close()
    return world.count == 3 and not world.lossy and world.dirs == 1 and world.network.settings.spike_chance == 0


def test_a_broker_that_was_out_of_touch_lets_go_of_a_topic_that_was_deleted_meanwhile():
    """Its session was over, its process was not: the topic was deleted and made again on others (seed 2)."""

    async def script(stage):
        last = stage.nodes[2]
        await stage.until(lambda: stage.tree.get("/controller") is not None, "a controller")
        await stage.create("t", [1, 3])
        await stage.settled()
        assert stage.has(last, "t")
        last.cut_store()
        await stage.until(lambda: stage.tree.get("/brokers/ids/3") is None, "its session is over")
        await stage.delete("t")
        await stage.until(lambda: stage.tree.get("/brokers/topics/t") is None, "the topic is gone")
        await stage.create("t", [1, 2])
        last.heal_store()
        await stage.settled()
        assert not stage.has(last, "t")

    Stage(script).run()


def test_a_topic_that_was_made_again_takes_the_place_of_the_former_on_a_broker_that_heard_of_neither():
    """The orders to delete and to make again did not reach it before its session ended; then it is told of the new one only."""

    async def script(stage):
        controller = await _controller(stage)
        first, last = (node for node in stage.nodes if node is not controller)
        await stage.create("t", [first.number, last.number])
        await stage.settled()
        former = next(each for each in last.broker.partitions if each.topic_partition.topic == "t")
        stage.network.block(controller.host, last.host)
        await stage.delete("t")
        await stage.until(lambda: stage.tree.get("/brokers/topics/t") is None, "the topic is gone")
        await stage.create("t", [first.number, last.number])
        stage.tree.lose_sessions_of(last.host)
        await stage.until(lambda: stage.tree.get(f"/brokers/ids/{last.number}") is not None, "it is registered anew")
        stage.network.unblock(controller.host, last.host)
        await stage.settled()
        now = next(each for each in last.broker.partitions if each.topic_partition.topic == "t")
        assert now.topic_id != former.topic_id

    Stage(script).run()


async def _controller(stage):
    found = []

    def known():
        found[:] = [node for node in stage.nodes if node.broker.controller.in_office]
        return found

    await stage.until(known, "a controller")
    return found[0]
