"""Failures that seeds of the world `cluster` found, step by step, in the same virtual world."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.errors import ErrorCode
from ottla.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from ottla.protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from ottla.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from ottla.protocol.messages.leader_and_isr import LeaderAndIsrRequest
from ottla.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.records.record import build_batch
from ottla.sim.actors import readers
from ottla.sim.actors.play import PlayTopic
from ottla.sim.kernel.machine import START_MS
from ottla.sim.models.log_files import stored_batches
from ottla.sim.violation import Violation
from ottla.sim.worlds.cluster_harness import ClusterHarness


class Stage:
    """Three brokers, and a script that decides what happens to them."""

    def __init__(self, script: Any, *, flushes: Any = None) -> None:
        """`flushes`: whether every record is flushed before it is acknowledged; None: it does not matter."""
        seed = next(seed for seed in range(1, 1000) if _is_plain(ClusterHarness(seed), flushes))
        self.cluster = cluster = ClusterHarness(seed)
        self.nodes, self.tree, self.network, self.loop = cluster.nodes, cluster.tree, cluster.network, cluster.loop
        self.until, self.settled = cluster.until, cluster.until_settled
        self._script = script

    def run(self) -> None:
        self.cluster.run(self._main)

    async def _main(self) -> None:
        await self.cluster.start_all()
        await self._script(self)
        self.cluster.rules.check()
        self.cluster.complaints.check()

    async def ask(self, api: Any, version: Any, request: Any, code_of: Any, done: Any) -> None:
        """Ask any broker until it is done. `done` is the error that says that an earlier try was successful."""

        async def act(actor: Any) -> None:
            while True:
                code = code_of(await actor.any_broker(api, version, request))
                if code in (ErrorCode.NONE, done):
                    return
                assert code == ErrorCode.NOT_CONTROLLER, ErrorCode(code).name
                await actor.backoff()

        await self.cluster.alone("admin", act)

    async def create(self, name: Any, replicas: Any, **config: Any) -> None:
        topic = CreatableTopic(
            name=name,
            num_partitions=-1,
            replication_factor=-1,
            assignments=[CreatableReplicaAssignment(partition_index=0, broker_ids=replicas)],
            configs=[CreatableTopicConfig(name=key.replace("_", "."), value=value) for key, value in config.items()],
        )
        request = CreateTopicsRequest(topics=[topic], timeout_ms=3000)
        exists = ErrorCode.TOPIC_ALREADY_EXISTS
        await self.ask("create_topics", 7, request, lambda found: found.topics[0].error_code, exists)

    async def delete(self, name: Any) -> None:
        request = DeleteTopicsRequest(topics=[DeleteTopicState(name=name)], timeout_ms=3000)
        unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        await self.ask("delete_topics", 6, request, lambda found: found.responses[0].error_code, unknown)

    async def reassign(self, name: Any, replicas: Any) -> None:
        partition = ReassignablePartition(partition_index=0, replicas=replicas)
        topic = ReassignableTopic(name=name, partitions=[partition])
        request = AlterPartitionReassignmentsRequest(timeout_ms=3000, topics=[topic])

        def code_of(found: Any) -> Any:
            return found.error_code or found.responses[0].partitions[0].error_code

        await self.ask("alter_partition_reassignments", 0, request, code_of, ErrorCode.NONE)

    async def produce(self, node: Any, name: Any, value: Any, acks: Any) -> None:
        topic_id = next(each.topic_id for each in node.broker.partitions if each.topic_partition.topic == name)
        data = PartitionProduceData(index=0, records=build_batch([(None, value, (), START_MS)]))
        topic = TopicProduceData(name=name, topic_id=topic_id, partition_data=[data])
        request = ProduceRequest(acks=acks, timeout_ms=3000, topic_data=[topic])

        async def act(actor: Any) -> None:
            found = await actor.call(("127.0.0.1", node.port), "produce", 13, request)
            assert found.responses[0].partition_responses[0].error_code == ErrorCode.NONE

        await self.cluster.alone("producer", act)

    def has(self, node: Any, name: Any) -> Any:
        return any(each.topic_partition.topic == name for each in node.broker.partitions)


def _is_plain(cluster: Any, flushes: Any) -> Any:
    cluster.loop.close()
    common, network = cluster.common, cluster.network.settings
    return (
        cluster.count == 3
        and cluster.dirs == 1
        and not cluster.lossy
        and (flushes is None or cluster.flushes == flushes)
        and cluster.min_isr == 1
        and network.spike_chance == 0
        and common["replica.high.watermark.checkpoint.interval.ms"] == "5000"
        and common["replica.lag.time.max.ms"] == "4000"
    )


def test_a_disconnected_broker_drops_a_topic_that_was_deleted_meanwhile() -> None:
    """Its session expired while its process ran on: the topic was deleted and created again on others (seed 2)."""

    async def script(stage: Any) -> None:
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


def test_a_recreated_topic_replaces_the_old_one_on_a_broker_that_missed_both_requests() -> None:
    """StopReplica and LeaderAndIsr did not reach it before its session expired; then it learns of the new topic only."""

    async def script(stage: Any) -> None:
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


@pytest.mark.parametrize("then", ["moved", "deleted"])
def test_a_late_request_does_not_bring_a_deleted_replica_back(then: Any) -> None:
    """The request was sent again and obeyed, then the replica was deleted; the first request arrives after that (seed 24)."""

    async def script(stage: Any) -> None:
        controller = await _controller(stage)
        first, second = (node for node in stage.nodes if node is not controller)
        await stage.create("t", [first.number, second.number])
        await stage.settled()
        orders, late = second.broker.cluster.control_requests, []
        obey = orders.handle

        def listen(version: Any, request: Any, connection: Any) -> Any:
            late.append((version, request, connection))
            return obey(version, request, connection)

        orders.handle = listen
        stage.tree.lose_sessions_of(first.host)  # another broker leads then, which is a request to all
        await stage.until(lambda: late and stage.cluster.rules.state(("t", 0)).leader == second.number, "an order")
        await stage.settled()
        if then == "moved":
            await stage.reassign("t", [first.number, controller.number])
        else:
            await stage.delete("t")
        await stage.until(lambda: not stage.has(second, "t"), "the replica is gone")
        newest = max(connection for _, _, connection in late)  # an older broker epoch alone would be refused
        for version, request, _ in late:
            if isinstance(request, LeaderAndIsrRequest):
                await second.spawn(_obeyed(obey, version, request, newest))
        assert not stage.has(second, "t")

    Stage(script).run()


async def _obeyed(obey: Any, version: Any, request: Any, connection: Any) -> None:
    await obey(version, request, connection)


def test_a_follower_that_truncated_learns_the_high_watermark_again() -> None:
    """The response with the diverging epoch carries the high watermark, and a fetch session does not repeat it (seed 45)."""

    async def script(stage: Any) -> None:
        controller = await _controller(stage)
        first, second = (node for node in stage.nodes if node is not controller)
        await stage.create("t", [first.number, second.number])
        await stage.settled()
        await stage.produce(first, "t", b"both have it", acks=-1)
        stage.network.block(first.host, second.host)
        stage.network.block(second.host, first.host)
        await stage.produce(first, "t", b"one has it", acks=1)
        first.kill()
        await stage.until(lambda: stage.cluster.rules.state(("t", 0)).leader == second.number, "the other one leads")
        stage.network.heal()
        assert len(stored_batches(first.disk, "/d/t-0")) == 2, "it has what the other one has not"
        await first.start()
        await stage.settled()
        assert [_replica(node, "t").log.high_watermark for node in (first, second)] == [1, 1]

    Stage(script).run()


def _replica(node: Any, name: Any) -> Any:
    return next(each for each in node.broker.partitions if each.topic_partition.topic == name)


async def _controller(stage: Any) -> Any:
    found: list[Any] = []

    def known() -> Any:
        found[:] = [node for node in stage.nodes if node.broker.controller.state.is_active]
        return found

    await stage.until(known, "a controller")
    return found[0]


@pytest.mark.parametrize("what", ["moved", "deleted"])
def test_a_new_controller_sends_what_the_old_one_wrote_and_did_not_send(what: Any) -> None:
    """It died before the request arrived, and the tree does not say that it is missing (seeds 1005, 1107)."""

    async def script(stage: Any) -> None:
        controller = await _controller(stage)
        first, last = (node for node in stage.nodes if node is not controller)
        await stage.create("t", [first.number, last.number])
        await stage.settled()
        stage.network.block(controller.host, last.host)
        if what == "moved":
            await stage.reassign("t", [first.number, controller.number])
            moved = [first.number, controller.number]
            await stage.until(lambda: list(stage.cluster.rules.state(("t", 0)).replicas) == moved, "it has moved")
        else:
            await stage.delete("t")
            await stage.until(lambda: stage.tree.get("/brokers/topics/t") is None, "the topic is gone")
        assert stage.has(last, "t")
        controller.kill()
        stage.network.heal()
        await stage.until(lambda: not stage.has(last, "t"), "its successor has told it")
        await controller.start()
        await stage.settled()

    Stage(script).run()


async def _replaced_leader(stage: Any) -> tuple[Any, Any]:
    """A leader that does not know that it was replaced, and its successor, which has one more record."""
    controller = await _controller(stage)
    first, second = (node for node in stage.nodes if node is not controller)
    await stage.create("t", [first.number, second.number])
    await stage.settled()
    await stage.produce(first, "t", b"both have it", acks=-1)
    for other in (controller, second):
        stage.network.block(first.host, other.host)
        stage.network.block(other.host, first.host)
    first.cut_store()
    await stage.until(lambda: stage.cluster.rules.state(("t", 0)).leader == second.number, "the other one leads")
    await stage.until(lambda: _replica(second, "t").is_leader, "it knows that it leads")
    await stage.produce(second, "t", b"one has it", acks=-1)
    assert _replica(first, "t").is_leader, "it does not know that it was replaced"
    stage.cluster.play.topics["t"] = PlayTopic("t", _replica(first, "t").topic_id, 1)
    return first, second


@pytest.mark.parametrize(("version", "answer"), [(4, "OFFSET_OUT_OF_RANGE"), (17, "UNKNOWN_LEADER_EPOCH")])
def test_a_replaced_leader_does_not_have_what_was_read_from_its_successor(
    version: Any, answer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It did not know that it was replaced, as Kafka's leaders do not, and a consumer came back to it (seeds 920273, 930100).

    A consumer that names the leader epoch it knows (KIP-320) is told that the leader is behind; one that cannot is out of range.
    """
    monkeypatch.setattr(readers, "FETCH_VERSIONS", (version,))
    codes: list[str] = []

    async def script(stage: Any) -> None:
        first, second = await _replaced_leader(stage)

        async def act(actor: Any) -> None:
            position = readers.Position(("t", 0), 0, committed=False)
            actor.leader_epochs["t", 0] = _replica(second, "t").leader_epoch
            expect = actor.expect

            def listen(code: Any, *rest: Any) -> Any:
                codes.append(ErrorCode(code).name)
                return expect(code, *rest)

            actor.expect = listen
            for node in (second, first):
                actor._leaders["t", 0] = ("127.0.0.1", node.port)
                await readers.poll(actor, position)
            assert position.offset == 2

        await stage.cluster.alone("reader", act)
        stage.network.heal()
        first.heal_store()
        await stage.settled()

    Stage(script).run()
    assert codes == ["NONE", answer]


@pytest.mark.parametrize("version", [4, 17])
def test_a_leader_has_what_was_read_from_its_predecessor(version: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The rule is not given up for the leader itself: an offset beyond its log that was read before is a violation."""
    monkeypatch.setattr(readers, "FETCH_VERSIONS", (version,))

    async def script(stage: Any) -> None:
        _, second = await _replaced_leader(stage)

        async def act(actor: Any) -> None:
            position = readers.Position(("t", 0), 3, committed=False, leader_epoch=0)
            actor.leader_epochs["t", 0] = _replica(second, "t").leader_epoch
            actor._leaders["t", 0] = ("127.0.0.1", second.port)
            await readers.poll(actor, position)

        await stage.cluster.alone("reader", act)

    with pytest.raises(Violation, match="read-bound"):
        Stage(script).run()


def test_a_deletion_whose_controller_loses_its_session_is_answered_and_finished_by_the_next() -> None:
    """The topic was marked; the session expired before its nodes were removed (seed 930234)."""
    codes: list[ErrorCode] = []

    async def script(stage: Any) -> None:
        controller = await _controller(stage)
        first, last = (node for node in stage.nodes if node is not controller)
        await stage.create("t", [first.number, last.number])
        await stage.settled()
        stage.network.block(controller.host, last.host)  # its answer is waited for
        request = DeleteTopicsRequest(topics=[DeleteTopicState(name="t")], timeout_ms=3000)

        async def act(actor: Any) -> None:
            found = await actor.call(("127.0.0.1", controller.port), "delete_topics", 6, request, patience_s=60.0)
            codes.append(ErrorCode(found.responses[0].error_code))

        deletion = stage.loop.create_task(stage.cluster.alone("admin", act))
        await stage.until(lambda: stage.tree.get("/admin/delete_topics/t") is not None, "the topic is marked")
        controller.cut_store()
        await stage.until(lambda: stage.tree.get(f"/brokers/ids/{controller.number}") is None, "its session is over")
        await stage.cluster.pass_time(10.0)
        controller.heal_store()
        stage.network.heal()
        await deletion
        await stage.until(lambda: stage.tree.get("/brokers/topics/t") is None, "the topic is gone")
        await stage.settled()

    Stage(script).run()
    assert codes == [ErrorCode.KAFKA_STORAGE_ERROR]
