"""Three brokers in one loop that replicate for real, over sockets and files; the test is their controller.

What a controller decides is tested elsewhere: here it does as it is told, so that each case can have exactly the orders it needs.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast
from unittest.mock import Mock

import pytest

from ottla.broker.app import Broker
from ottla.broker.controller.controller_state import ControllerState
from ottla.broker.network.context import CloseConnection
from ottla.broker.network.inter_broker import PeerUnavailable
from ottla.broker.replicas.partition import Partition
from ottla.client.connection import ClientConnection
from ottla.cluster.node_tree import NodeTree
from ottla.cluster.settings import BrokerSettings
from ottla.errors import ErrorCode
from ottla.metrics import Counters
from ottla.ports import Change, Node, SessionEvent
from ottla.protocol.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    ResponsePartitionData,
    ResponseTopicData,
)
from ottla.protocol.messages.api_versions import ApiVersionsRequest
from ottla.protocol.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from ottla.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ReplicaState
from ottla.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from ottla.protocol.messages.leader_and_isr import LeaderAndIsrPartitionState, LeaderAndIsrRequest, LeaderAndIsrTopicState
from ottla.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ottla.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.protocol.messages.stop_replica import StopReplicaPartitionState, StopReplicaRequest, StopReplicaTopicState
from ottla.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from ottla.protocol.messages.update_metadata import (
    UpdateMetadataBroker,
    UpdateMetadataEndpoint,
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataTopicState,
)
from ottla.records.record import build_batch
from ottla.runtime.loop import ThreadWorkers, real_world, run
from ottla.storage.flush import FlushPlan
from ottla.types import TopicPartition
from tests.kit.wait import until_async

TOPIC = "t"
TOPIC_ID = bytes(range(1, 17))
T0 = TopicPartition(TOPIC, 0)
CONTROLLER = 1


class Store:
    """A metadata tree that all brokers of a test share."""

    def __init__(self, tree: NodeTree) -> None:
        self._tree = tree
        self.callbacks: list[Callable[[SessionEvent], None]] = []

    async def get(self, path: str) -> Node | None:
        return self._tree.get(path, self)

    async def children(self, path: str) -> list[str]:
        return self._tree.names_below(path)

    async def multi(self, changes: Sequence[Change]) -> list[str]:
        transaction = self._tree.begin(self)
        try:
            paths = [transaction.apply(change) for change in changes]
        except Exception:
            transaction.undo()
            raise
        transaction.commit()
        return paths

    def watch(self, path: str, callback: Callable[[str], None]) -> None: ...

    def unwatch(self, path: str, callback: Callable[[str], None]) -> None: ...

    def on_session(self, callback: Callable[[SessionEvent], None]) -> None:
        self.callbacks.append(callback)

    async def close(self) -> None: ...


class Member(Broker):
    """A broker of a cluster whose controller is the test."""

    async def _join_cluster(self) -> None:
        self.metadata.image = self.cluster.metadata_cache.image
        self.controller = cast(Any, Mock(state=ControllerState(self.broker_id, self.settings)))
        self.metadata.registration_epoch = lambda: 100 + self.broker_id


@dataclass
class State:
    leader: int
    isr: list[int]
    leader_epoch: int = 0
    partition_epoch: int = 0
    replicas: list[int] = field(default_factory=lambda: [1, 2, 3])
    topic_id: bytes = TOPIC_ID


class Cluster:
    def __init__(self, path: Path, settings: dict[str, str]) -> None:
        self.path = path
        self.settings = settings
        self.tree = NodeTree()
        self.brokers: dict[int, Member] = {}
        self.ports: dict[int, int] = {}
        self.states: dict[TopicPartition, State] = {}
        self.epoch = 1
        self.isr_asked: list[list[int]] = []
        self.isr_error = ErrorCode.NONE
        self.isr_gate: asyncio.Event | None = None
        self.clients: list[ClientConnection] = []

    async def start(self, *numbers: int) -> None:
        for number in numbers:
            properties = {
                "broker.id": str(number),
                "log.dirs": str(self.path / str(number)),
                "listeners": f"PLAINTEXT://127.0.0.1:{self.ports.get(number, 0)}",
                "zookeeper.connect": "given",
                "replica.fetch.backoff.ms": "50",
                "replica.fetch.wait.max.ms": "200",
                "log.initial.task.delay.ms": "0",
                **self.settings,
            }
            settings = BrokerSettings.parse(properties)
            counters = Counters()
            broker = Member(settings, real_world(counters, settings), store=Store(self.tree), counters=counters)  # type: ignore[arg-type]
            await broker.start()
            self._answer_isr_changes(broker)
            self.ports[number] = next(iter(broker.bound_ports.values()))
            self.brokers[number] = broker

    async def kill(self, number: int) -> None:
        """Without handing anything over, and without the mark of a clean stop."""
        broker = self.brokers.pop(number)
        broker.failure = "killed"
        await broker.stop()

    async def close(self) -> None:
        for client in self.clients:
            client.close()
        for number in list(self.brokers):
            await self.kill(number)

    def _answer_isr_changes(self, broker: Member) -> None:
        ask = broker.cluster.inter_broker.call

        async def call(broker_id: int, purpose: str, api_name: str, request: Any, **options: Any) -> Any:
            if api_name != "alter_partition":
                return await ask(broker_id, purpose, api_name, request, **options)
            if self.isr_gate is not None:
                await self.isr_gate.wait()
            return self._alter_partition(request(3))

        broker.cluster.inter_broker.call = call  # type: ignore[method-assign]

    def _alter_partition(self, request: AlterPartitionRequest) -> AlterPartitionResponse:
        response = AlterPartitionResponse()
        for topic in request.topics:
            answers: list[ResponsePartitionData] = []
            for asked in topic.partitions:
                state = self.states[TopicPartition(TOPIC, asked.partition_index)]
                self.isr_asked.append([replica.broker_id for replica in asked.new_isr_with_epochs])
                error = self.isr_error
                if not error and (asked.leader_epoch, asked.partition_epoch) != (state.leader_epoch, state.partition_epoch):
                    error = ErrorCode.INVALID_UPDATE_VERSION
                if not error:
                    state.isr = self.isr_asked[-1]
                    state.partition_epoch += 1
                answers.append(
                    ResponsePartitionData(
                        partition_index=asked.partition_index,
                        error_code=error,
                        leader_id=state.leader,
                        leader_epoch=state.leader_epoch,
                        isr=list(state.isr),
                        partition_epoch=state.partition_epoch,
                    )
                )
            response.topics.append(ResponseTopicData(topic_id=topic.topic_id, partitions=answers))
        return response

    async def order(
        self, key: TopicPartition, state: State, *, to: Sequence[int] | None = None, is_new: bool = False
    ) -> list[Any]:
        """LeaderAndIsr, then UpdateMetadata, to brokers that run."""
        self.states[key] = state
        answers = []
        for number in to if to is not None else list(self.brokers):
            broker = self.brokers[number]
            partition = LeaderAndIsrPartitionState(
                partition_index=key.partition,
                controller_epoch=self.epoch,
                leader=state.leader,
                leader_epoch=state.leader_epoch,
                isr=list(state.isr),
                partition_epoch=state.partition_epoch,
                replicas=state.replicas,
                is_new=is_new,
            )
            topic = LeaderAndIsrTopicState(topic_name=key.topic, topic_id=state.topic_id, partition_states=[partition])
            answers.append(
                await broker.cluster.control_requests.handle(
                    7,
                    LeaderAndIsrRequest(
                        controller_id=CONTROLLER,
                        controller_epoch=self.epoch,
                        broker_epoch=broker.metadata.broker_epoch,
                        topic_states=[topic],
                    ),
                )
            )
            await self.tell(number, key, state)
        return answers

    async def tell(self, number: int, key: TopicPartition, state: State) -> Any:
        broker = self.brokers[number]
        told = UpdateMetadataPartitionState(
            partition_index=key.partition,
            controller_epoch=self.epoch,
            leader=state.leader,
            leader_epoch=state.leader_epoch,
            isr=list(state.isr),
            zk_version=state.partition_epoch,
            replicas=state.replicas,
        )
        live = [
            UpdateMetadataBroker(
                id=other,
                endpoints=[UpdateMetadataEndpoint(port=self.ports[other], host="127.0.0.1", listener="PLAINTEXT")],
                rack=f"rack-{other}",
            )
            for other in self.brokers
        ]
        return await broker.cluster.control_requests.handle(
            8,
            UpdateMetadataRequest(
                controller_id=CONTROLLER,
                controller_epoch=self.epoch,
                broker_epoch=broker.metadata.broker_epoch,
                live_brokers=live,
                topic_states=[UpdateMetadataTopicState(topic_name=key.topic, topic_id=state.topic_id, partition_states=[told])],
            ),
        )

    def partition(self, number: int, key: TopicPartition = T0) -> Partition:
        return self.brokers[number].partitions.get(key)

    async def client(self, number: int) -> ClientConnection:
        connection = await ClientConnection.open(self.brokers[number].world.network, "127.0.0.1", self.ports[number])
        self.clients.append(connection)
        return connection

    async def produce(
        self,
        number: int,
        *values: bytes,
        acks: int = -1,
        timeout_ms: int = 60_000,
        client: ClientConnection | None = None,
        **batch: Any,
    ) -> Any:
        connection = await self.client(number)
        records = build_batch([(None, value, (), 1_700_000_000_000) for value in values], **batch)
        data = TopicProduceData(name=TOPIC, partition_data=[PartitionProduceData(index=0, records=records)])
        response = await connection.call("produce", 9, ProduceRequest(acks=acks, timeout_ms=timeout_ms, topic_data=[data]))
        return response.responses[0].partition_responses[0]

    async def until_equal(self, *numbers: int) -> None:
        """All replicas end and are committed at the same offset."""

        def equal() -> bool:
            logs = [self.partition(number).log for number in numbers]
            return len({(log.log_end_offset, log.high_watermark) for log in logs}) == 1

        await until_async(equal, "the replicas never agreed")

    def bytes_of(self, number: int) -> bytes:
        directory = self.path / str(number) / f"{TOPIC}-0"
        return b"".join(path.read_bytes() for path in sorted(directory.glob("*.log")))


def play(tmp_path: Path, case: Callable[[Cluster], Awaitable[None]], brokers: Sequence[int] = (1, 2, 3), **settings: Any) -> None:
    async def scene() -> None:
        cluster = Cluster(tmp_path, {name.replace("_", "."): value for name, value in settings.items()})
        try:
            await cluster.start(*brokers)
            await asyncio.wait_for(case(cluster), 120)
        finally:
            await cluster.close()

    run(scene())


@contextmanager
def deaf(cluster: Cluster, number: int) -> Iterator[None]:
    """A follower that cannot fetch."""
    inter_broker = cluster.brokers[number].cluster.inter_broker
    ask = inter_broker.call

    async def call(broker_id: int, purpose: str, api_name: str, request: Any, **options: Any) -> Any:
        if api_name == "fetch":
            raise PeerUnavailable("cut off")
        return await ask(broker_id, purpose, api_name, request, **options)

    inter_broker.call = call  # type: ignore[method-assign]
    for other in cluster.brokers:
        inter_broker.forget(other)  # a fetch that waits already would still be answered
    try:
        yield
    finally:
        inter_broker.call = ask  # type: ignore[method-assign]


def test_f46_acks_all_means_that_all_replicas_have_it(tmp_path: Path) -> None:
    async def case(cluster: Cluster) -> None:
        await cluster.order(T0, State(1, [1, 2, 3]), is_new=True)
        for number in range(20):
            answer = await cluster.produce(1, b"%d" % number)
            assert (answer.error_code, answer.base_offset) == (0, number)
            assert all(cluster.partition(broker).log.log_end_offset == number + 1 for broker in (1, 2, 3))
        await cluster.until_equal(1, 2, 3)
        assert cluster.bytes_of(1) == cluster.bytes_of(2) == cluster.bytes_of(3) != b""

    play(tmp_path, case)


def test_f50_a_new_leader_has_every_acknowledged_record(tmp_path: Path) -> None:
    async def case(cluster: Cluster) -> None:
        await cluster.order(T0, State(1, [1, 2, 3]), is_new=True)
        for number in range(10):
            await cluster.produce(1, b"%d" % number)
        await cluster.kill(1)
        await cluster.order(T0, State(2, [2, 3], 1, 1))
        answer = await cluster.produce(2, b"after")
        assert (answer.error_code, answer.base_offset) == (0, 10)
        await cluster.until_equal(2, 3)
        assert cluster.bytes_of(2) == cluster.bytes_of(3)
        await cluster.start(1)
        await cluster.order(T0, State(2, [2, 3], 2, 2))
        await until_async(lambda: 1 in cluster.states[T0].isr, "the first leader never came back into the ISR")
        await cluster.until_equal(1, 2, 3)
        assert cluster.bytes_of(1) == cluster.bytes_of(2)

    play(tmp_path, case)


def test_r06_what_only_a_dead_leader_had_is_cut_and_the_logs_are_equal(tmp_path: Path) -> None:
    async def case(cluster: Cluster) -> None:
        await cluster.order(T0, State(1, [1, 2, 3]), is_new=True)
        await cluster.produce(1, b"both")
        await cluster.until_equal(1, 2, 3)
        with deaf(cluster, 2), deaf(cluster, 3):
            # The fetches that wait already would still be answered.
            await until_async(lambda: len(cluster.brokers[1].purgatory) == 0)
            await cluster.produce(1, b"lost", acks=1)
            await cluster.kill(1)
        await cluster.order(T0, State(2, [2, 3], 1, 1))
        await cluster.produce(2, b"instead", b"of it")
        await cluster.start(1)
        await cluster.order(T0, State(2, [2, 3], 2, 2))
        await until_async(lambda: 1 in cluster.states[T0].isr)
        await cluster.until_equal(1, 2, 3)
        assert cluster.bytes_of(1) == cluster.bytes_of(2) == cluster.bytes_of(3)
        assert b"lost" not in cluster.bytes_of(1)

    play(tmp_path, case)


def test_r11_too_few_in_sync_nothing_is_appended_with_acks_all(tmp_path: Path) -> None:
    async def case(cluster: Cluster) -> None:
        await cluster.order(T0, State(1, [1, 2, 3]), is_new=True)
        assert (await cluster.produce(1, b"x")).error_code == 0
        await cluster.kill(2)
        await cluster.kill(3)
        await cluster.order(T0, State(1, [1], 1, 1))
        answer = await cluster.produce(1, b"y")
        assert answer.error_code == ErrorCode.NOT_ENOUGH_REPLICAS
        assert cluster.partition(1).log.log_end_offset == 1
        assert (await cluster.produce(1, b"z", acks=1)).error_code == 0
        assert cluster.partition(1).log.log_end_offset == 2
        assert cluster.partition(1).log.high_watermark == 1  # R13

    play(tmp_path, case, min_insync_replicas="2")


def test_r12_a_write_that_waits_hears_when_too_few_are_left(tmp_path: Path) -> None:
    async def case(cluster: Cluster) -> None:
        await cluster.order(T0, State(1, [1, 2, 3]), is_new=True)
        await cluster.produce(1, b"x")
        with deaf(cluster, 2), deaf(cluster, 3):
            await until_async(lambda: len(cluster.brokers[1].purgatory) == 0)
            answer = await cluster.produce(1, b"y", timeout_ms=30_000, producer_id=5, producer_epoch=0, base_sequence=0)
            assert answer.error_code == ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
            assert cluster.partition(1).log.log_end_offset == 2
        await until_async(lambda: len(cluster.states[T0].isr) == 3)
        again = await cluster.produce(1, b"y", producer_id=5, producer_epoch=0, base_sequence=0)
        assert (again.error_code, again.base_offset) == (0, 1)
        assert cluster.partition(1).log.log_end_offset == 2

    play(tmp_path, case, min_insync_replicas="2", replica_lag_time_max_ms="1500")


@asynccontextmanager
async def waiting_write(cluster: Cluster) -> AsyncIterator[asyncio.Future[Any]]:
    """An acks=all write to the leader, 1, while 3 hears nothing."""
    await cluster.order(T0, State(1, [1, 2, 3]), is_new=True)
    await cluster.produce(1, b"x")
    with deaf(cluster, 3):
        waiting = asyncio.ensure_future(cluster.produce(1, b"y", timeout_ms=60_000))
        await until_async(lambda: cluster.partition(1).log.log_end_offset == 2)
        yield waiting


def test_r12_a_write_that_waits_outlives_a_new_epoch_of_its_leader(tmp_path: Path) -> None:
    async def case(cluster: Cluster) -> None:
        async with waiting_write(cluster) as waiting:
            await cluster.order(T0, State(1, [1, 2, 3], 1, 1))
            assert not waiting.done()
        answer = await waiting
        assert (answer.error_code, answer.base_offset) == (0, 1)

    play(tmp_path, case, replica_lag_time_max_ms="60000")


def test_r12_a_write_that_waits_hears_that_its_leader_was_replaced(tmp_path: Path) -> None:
    async def case(cluster: Cluster) -> None:
        async with waiting_write(cluster) as waiting:
            await cluster.order(T0, State(2, [1, 2, 3], 1, 1))
            assert (await waiting).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER

    play(tmp_path, case, replica_lag_time_max_ms="60000")


def test_f47_a_follower_that_falls_behind_leaves_and_comes_back(tmp_path: Path) -> None:
    async def case(cluster: Cluster) -> None:
        await cluster.order(T0, State(1, [1, 2, 3]), is_new=True)
        await cluster.produce(1, b"x")
        with deaf(cluster, 3):
            await until_async(lambda: len(cluster.brokers[1].purgatory) <= 1)
            answer = await cluster.produce(1, b"y")  # waits until the controller has confirmed that 3 is out
            assert answer.error_code == 0
            # If this process was paused for longer than the lag that is allowed, 2 is out too.
            assert 3 not in cluster.states[T0].isr
            assert cluster.partition(3).log.log_end_offset == 1
        await until_async(lambda: sorted(cluster.states[T0].isr) == [1, 2, 3])
        await cluster.until_equal(1, 2, 3)

    play(tmp_path, case, replica_lag_time_max_ms="2000")


def test_r02_while_the_controller_does_not_answer_the_old_isr_counts(tmp_path: Path) -> None:
    async def case(cluster: Cluster) -> None:
        await cluster.order(T0, State(1, [1, 2, 3]), is_new=True)
        await cluster.produce(1, b"x")
        cluster.isr_gate = asyncio.Event()
        with deaf(cluster, 3):
            await until_async(lambda: len(cluster.brokers[1].purgatory) <= 1)
            waiting = asyncio.ensure_future(cluster.produce(1, b"y", timeout_ms=20_000))
            leader = cluster.partition(1)
            await until_async(lambda: leader.leadership is not None and leader.leadership.pending is not None)
            await until_async(lambda: cluster.partition(2).log.log_end_offset == 2)
            assert leader.log.high_watermark == 1
            assert not waiting.done()
            cluster.isr_gate.set()
            assert (await waiting).error_code == 0
        assert leader.log.high_watermark == 2

    # A busy machine must not make the followers late before one of them is made so.
    play(tmp_path, case, replica_lag_time_max_ms="2000")


def test_a_produce_times_out_when_the_replicas_take_too_long(tmp_path: Path) -> None:
    async def case(cluster: Cluster) -> None:
        await cluster.order(T0, State(1, [1, 2, 3]), is_new=True)
        await cluster.produce(1, b"x")
        with deaf(cluster, 3):
            await until_async(lambda: len(cluster.brokers[1].purgatory) <= 1)
            answer = await cluster.produce(1, b"y", timeout_ms=50)
            assert answer.error_code == ErrorCode.REQUEST_TIMED_OUT

    play(tmp_path, case)


def test_r15_who_waits_at_a_leader_that_is_none_any_more_hears_so(tmp_path: Path) -> None:
    async def case(cluster: Cluster) -> None:
        await cluster.order(T0, State(1, [1, 2, 3]), is_new=True)
        await cluster.produce(1, b"x")
        with deaf(cluster, 3), deaf(cluster, 2):
            await until_async(lambda: len(cluster.brokers[1].purgatory) == 0)
            waiting = asyncio.ensure_future(cluster.produce(1, b"never", timeout_ms=20_000))
            await until_async(lambda: cluster.partition(1).log.log_end_offset == 2)
            await cluster.order(T0, State(2, [2, 3], 1, 1))
            assert (await waiting).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        await cluster.produce(2, b"instead")
        await until_async(lambda: 1 in cluster.states[T0].isr)
        await cluster.until_equal(1, 2, 3)
        assert b"never" not in cluster.bytes_of(1)
        assert cluster.bytes_of(1) == cluster.bytes_of(2)

    play(tmp_path, case)


def test_c02_c03_orders_of_former_controllers_and_for_former_lives_change_nothing(tmp_path: Path) -> None:
    async def case(cluster: Cluster) -> None:
        cluster.epoch = 5
        await cluster.order(T0, State(1, [1, 2, 3], 3), is_new=True)
        cluster.epoch = 4
        [answer] = await cluster.order(T0, State(2, [2], 9), to=[1])
        assert answer.error_code == ErrorCode.STALE_CONTROLLER_EPOCH
        assert answer.topics[0].partition_errors[0].error_code == ErrorCode.STALE_CONTROLLER_EPOCH
        orders = cluster.brokers[1].cluster.control_requests
        stop = StopReplicaTopicState(
            topic_name=TOPIC,
            partition_states=[StopReplicaPartitionState(partition_index=0, leader_epoch=9, delete_partition=True)],
        )
        former_life = StopReplicaRequest(controller_id=1, controller_epoch=5, broker_epoch=50, topic_states=[stop])
        assert (await orders.handle(4, former_life)).error_code == ErrorCode.STALE_BROKER_EPOCH  # type: ignore[attr-defined]
        cluster.epoch = 5
        [stale] = await cluster.order(T0, State(2, [2], 2), to=[1])
        assert stale.topics[0].partition_errors[0].error_code == ErrorCode.STALE_CONTROLLER_EPOCH
        assert cluster.partition(1).is_leader
        assert cluster.partition(1).leader_epoch == 3

    play(tmp_path, case)


def test_an_order_to_delete_that_was_told_again_since_deletes_no_topic_made_under_the_same_name(tmp_path: Path) -> None:
    """It names no topic id (StopReplica 4): all that tells it apart is that its controller has another connection by now."""

    async def case(cluster: Cluster) -> None:
        orders = cluster.brokers[1].cluster.control_requests

        def stop() -> StopReplicaRequest:
            partition = StopReplicaPartitionState(partition_index=0, leader_epoch=-2, delete_partition=True)
            topic = StopReplicaTopicState(topic_name=TOPIC, partition_states=[partition])
            epoch = cluster.brokers[1].metadata.broker_epoch
            return StopReplicaRequest(controller_id=1, controller_epoch=1, broker_epoch=epoch, topic_states=[topic])

        obey = orders.handle
        orders.handle = lambda version, request, connection=8: obey(version, request, connection)  # type: ignore[method-assign]
        await cluster.order(T0, State(1, [1], replicas=[1]), is_new=True)
        assert (await orders.handle(4, stop(), 9)).error_code == ErrorCode.NONE  # type: ignore[attr-defined]
        assert cluster.brokers[1].partitions.find(T0) is None
        orders.handle = lambda version, request, connection=9: obey(version, request, connection)  # type: ignore[method-assign]
        await cluster.order(T0, State(1, [1], replicas=[1], topic_id=bytes(range(2, 18))), is_new=True)
        await cluster.produce(1, b"of the second topic")
        with pytest.raises(CloseConnection):
            await obey(4, stop(), 8)
        assert cluster.partition(1).log.log_end_offset == 1
        # A controller that was elected since may have a connection of before.
        cluster.epoch = 2
        orders.handle = lambda version, request, connection=3: obey(version, request, connection)  # type: ignore[method-assign]
        await cluster.order(T0, State(1, [1], 1, 1, replicas=[1], topic_id=bytes(range(2, 18))))
        assert cluster.partition(1).leader_epoch == 1

    play(tmp_path, case, brokers=(1,))


def test_r08_r10_a_follower_of_another_epoch_or_history_counts_for_nothing(tmp_path: Path) -> None:
    async def case(cluster: Cluster) -> None:
        await cluster.order(T0, State(1, [1], 4), is_new=True)
        await cluster.produce(1, b"a", b"b")
        client = await cluster.client(1)

        async def fetch(offset: int, epoch: int, last_epoch: int, replica: int = 2, life: int = 7) -> Any:
            asked = FetchPartition(
                partition=0,
                fetch_offset=offset,
                partition_max_bytes=1 << 20,
                current_leader_epoch=epoch,
                last_fetched_epoch=last_epoch,
                log_start_offset=0,
            )
            request = FetchRequest(
                max_wait_ms=0,
                min_bytes=1,
                replica_state=ReplicaState(replica_id=replica, replica_epoch=life),
                topics=[FetchTopic(topic_id=TOPIC_ID, partitions=[asked])],
            )
            return (await client.call("fetch", 17, request)).responses[0].partitions[0]

        leadership = cluster.partition(1).leadership
        assert leadership is not None
        assert (await fetch(2, 3, 3)).error_code == ErrorCode.FENCED_LEADER_EPOCH
        assert (await fetch(2, 5, 4)).error_code == ErrorCode.UNKNOWN_LEADER_EPOCH
        diverging = await fetch(2, 4, 3)
        assert diverging.diverging_epoch is not None
        assert not diverging.records
        assert leadership.followers[2].log_end_offset == -1
        assert (await fetch(0, 4, -1, replica=9)).error_code == ErrorCode.UNKNOWN_LEADER_EPOCH
        assert (await fetch(2, 4, 4)).error_code == 0
        assert leadership.followers[2].log_end_offset == 2
        assert leadership.followers[2].broker_epoch == 7
        # Restarted with an empty log; then comes what its former life had sent (C03).
        assert (await fetch(0, 4, -1, life=8)).error_code == 0
        assert (await fetch(2, 4, 4)).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert leadership.followers[2].log_end_offset == 0

    play(tmp_path, case, brokers=(1,))


def test_r04_latest_is_not_told_before_it_is_known(tmp_path: Path) -> None:
    async def case(cluster: Cluster) -> None:
        await cluster.order(T0, State(1, [1, 2, 3]), is_new=True)
        await cluster.produce(1, b"x")
        with deaf(cluster, 2), deaf(cluster, 3):
            await until_async(lambda: len(cluster.brokers[1].purgatory) == 0)
            await cluster.produce(1, b"y", acks=1)
            await cluster.order(T0, State(1, [1, 2, 3], 1, 1))
            client = await cluster.client(1)
            asked = ListOffsetsTopic(name=TOPIC, partitions=[ListOffsetsPartition(partition_index=0, timestamp=-1)])
            for version, error in ((5, ErrorCode.OFFSET_NOT_AVAILABLE), (4, ErrorCode.LEADER_NOT_AVAILABLE)):
                response = await client.call("list_offsets", version, ListOffsetsRequest(replica_id=-1, topics=[asked]))
                assert response.topics[0].partitions[0].error_code == error

    play(tmp_path, case)


def test_c08_a_topic_made_anew_while_a_broker_was_away_has_none_of_the_old_data(tmp_path: Path) -> None:
    async def case(cluster: Cluster) -> None:
        await cluster.order(T0, State(1, [1, 2, 3]), is_new=True)
        await cluster.produce(1, b"old")
        await cluster.until_equal(1, 2, 3)
        await cluster.kill(3)
        await cluster.kill(2)
        await cluster.start(2)
        other = bytes(16 * [7])
        await cluster.order(T0, State(2, [2], topic_id=other), to=[2], is_new=True)
        assert cluster.partition(2).log.log_end_offset == 0
        cluster.states[T0].isr = [2]
        await cluster.produce(2, b"new")
        await cluster.start(3)
        await cluster.order(T0, State(2, [2], 1, 1, topic_id=other), to=[2, 3])
        await until_async(lambda: 3 in cluster.states[T0].isr)
        assert b"old" not in cluster.bytes_of(3)
        assert cluster.bytes_of(3) == cluster.bytes_of(2)

    play(tmp_path, case)


def test_l10_the_log_start_moves_on_all_replicas(tmp_path: Path) -> None:
    async def case(cluster: Cluster) -> None:
        await cluster.order(T0, State(1, [1, 2, 3]), is_new=True)
        for number in range(5):
            await cluster.produce(1, b"%d" % number)
        await cluster.until_equal(1, 2, 3)
        client = await cluster.client(1)
        asked = DeleteRecordsTopic(name=TOPIC, partitions=[DeleteRecordsPartition(partition_index=0, offset=3)])
        response = await client.call("delete_records", 2, DeleteRecordsRequest(timeout_ms=10_000, topics=[asked]))
        answer = response.topics[0].partitions[0]
        assert (answer.error_code, answer.low_watermark) == (0, 3)
        assert all(cluster.partition(number).log.log_start_offset == 3 for number in (1, 2, 3))

    play(tmp_path, case)


def test_r19_a_consumer_is_sent_to_the_follower_of_its_rack_and_served_what_is_committed(tmp_path: Path) -> None:
    async def case(cluster: Cluster) -> None:
        await cluster.order(T0, State(1, [1, 2, 3]), is_new=True)
        await cluster.produce(1, b"a", b"b")
        await cluster.until_equal(1, 2, 3)

        async def fetch(number: int, offset: int, rack: str, version: int = 11) -> Any:
            client = await cluster.client(number)
            asked = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
            topic = FetchTopic(topic=TOPIC, partitions=[asked])
            request = FetchRequest(max_wait_ms=0, min_bytes=1, rack_id=rack, topics=[topic])
            return (await client.call("fetch", version, request)).responses[0].partitions[0]

        sent = await fetch(1, 0, "rack-3")
        assert (sent.preferred_read_replica, bytes(sent.records)) == (3, b"")
        assert (await fetch(1, 0, "rack-1")).preferred_read_replica == -1
        assert (await fetch(1, 0, "nowhere")).preferred_read_replica == -1
        served = await fetch(3, 0, "rack-3")
        assert served.error_code == 0
        assert bytes(served.records) == cluster.bytes_of(3)
        assert (await fetch(3, 5, "rack-3")).error_code == ErrorCode.OFFSET_NOT_AVAILABLE
        assert (await fetch(3, 0, "rack-3", version=10)).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        # A replica that is not in sync is never preferred.
        cluster.isr_error = ErrorCode.INELIGIBLE_REPLICA
        await cluster.order(T0, State(1, [1, 2], 1, 1))
        await until_async(lambda: cluster.partition(1).log.high_watermark == 2)
        assert (await fetch(1, 0, "rack-3")).preferred_read_replica == -1

    play(tmp_path, case, replica_selector_class="org.apache.kafka.common.replica.RackAwareReplicaSelector")


@pytest.mark.parametrize("batch_size", [1, 5])
def test_a_follower_far_behind_starts_where_the_leaders_log_starts(tmp_path: Path, batch_size: int) -> None:
    """Also in the middle of a batch. Found with Kafka's own test of replicas after DeleteRecords: it was refused for ever."""

    async def case(cluster: Cluster) -> None:
        await cluster.order(T0, State(1, [1, 2]), to=[1, 2], is_new=True)
        for first in range(0, 5, batch_size):
            await cluster.produce(1, *(b"%d" % number for number in range(first, first + batch_size)))
        await cluster.until_equal(1, 2)
        cluster.partition(1).delete_records(3)
        await cluster.order(T0, State(1, [1, 2], 1, 1), is_new=True)
        await until_async(lambda: 3 in cluster.states[T0].isr)
        log = cluster.partition(3).log
        assert (log.log_start_offset, log.log_end_offset) == (3, 5)
        await cluster.produce(1, b"more")
        await until_async(lambda: log.log_end_offset == 6)

    play(tmp_path, case)


def test_f56_a_throttled_replica_takes_its_time_and_one_in_sync_does_not(tmp_path: Path) -> None:
    async def case(cluster: Cluster) -> None:
        await cluster.order(T0, State(1, [1, 2]), to=[1, 2], is_new=True)
        for _ in range(30):
            await cluster.produce(1, bytes(4000), timeout_ms=20_000)
        await cluster.until_equal(1, 2)
        for number in cluster.brokers:
            cluster.brokers[number].cluster.metadata_cache.configure_topic(TOPIC, {"leader.replication.throttled.replicas": "*"})
            cluster.brokers[number].cluster.replication.leader_quota.bytes_per_second = 20_000
        await cluster.order(T0, State(1, [1, 2], 1, 1))
        await until_async(lambda: cluster.partition(3).log.log_end_offset > 0)
        # 120 kB at 20 kB a second: not at once. Those in sync are not held up meanwhile.
        assert cluster.partition(3).log.log_end_offset < 30
        answer = await cluster.produce(1, b"now", timeout_ms=5_000)
        assert answer.error_code == 0
        assert cluster.partition(3).log.log_end_offset < 31
        for number in cluster.brokers:
            cluster.brokers[number].cluster.metadata_cache.configure_topic(TOPIC, {})
        await until_async(lambda: 3 in cluster.states[T0].isr)
        await cluster.until_equal(1, 2, 3)

    play(tmp_path, case, replica_fetch_max_bytes="4000")


def test_g07_a_member_that_asks_again_hears_no_assignment_that_could_still_be_lost(tmp_path: Path) -> None:
    """The first SyncGroup waits for the replicas; who asked a second time was answered from what the coordinator had in mind
    (found by the simulator: the next coordinator gave out lower generations)."""

    async def case(cluster: Cluster) -> None:
        offsets = TopicPartition("__consumer_offsets", 0)
        await cluster.order(offsets, State(1, [1, 2, 3], topic_id=bytes(range(2, 18))), is_new=True)
        await until_async(lambda: cluster.brokers[1].groups.shards.topic.known_leader_of("g") == 1)
        connection, again = await cluster.client(1), await cluster.client(1)
        join = JoinGroupRequest(
            group_id="g",
            session_timeout_ms=60_000,
            rebalance_timeout_ms=60_000,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
        )
        joined = await connection.call("join_group", 3, join)
        sync = SyncGroupRequest(
            group_id="g",
            generation_id=joined.generation_id,
            member_id=joined.member_id,
            assignments=[SyncGroupRequestAssignment(member_id=joined.member_id, assignment=b"mine")],
        )
        log = cluster.partition(1, offsets).log
        with deaf(cluster, 2), deaf(cluster, 3):
            await until_async(lambda: len(cluster.brokers[1].purgatory) == 0)
            waiting = [asyncio.ensure_future(connection.call("sync_group", 2, sync))]
            await until_async(lambda: log.log_end_offset > log.high_watermark)
            waiting.append(asyncio.ensure_future(again.call("sync_group", 2, sync)))
            await until_async(lambda: len(cluster.brokers[1].purgatory) == 2)
            assert not any(each.done() for each in waiting)
        for each in waiting:
            assert bytes((await each).assignment) == b"mine"
        assert log.high_watermark == log.log_end_offset

    play(tmp_path, case, offsets_commit_timeout_ms="60000", group_initial_rebalance_delay_ms="0")


# F14: with `flush.messages` a follower acknowledges, by its next fetch, what is on its disk; its broker does not wait for that.


class FlushGate:
    """Flushes of one broker begin when they are let."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, directory: Path) -> None:
        self.is_open = asyncio.Event()
        self.waiting = asyncio.Event()
        original = ThreadWorkers.run

        async def run(workers: ThreadWorkers, work: Callable[[], Any]) -> Any:
            plan = getattr(work, "__self__", None)
            if isinstance(plan, FlushPlan) and any(file.path.startswith(f"{directory}/") for file in plan.files):
                self.waiting.set()
                await self.is_open.wait()
            return await original(workers, work)

        monkeypatch.setattr(ThreadWorkers, "run", run)


def test_f14_a_follower_acknowledges_what_is_on_its_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def case(cluster: Cluster) -> None:
        gate = FlushGate(monkeypatch, tmp_path / "2")
        await cluster.order(T0, State(1, [1, 2], replicas=[1, 2]), is_new=True)
        written = asyncio.create_task(cluster.produce(1, b"a", b"b"))
        await gate.waiting.wait()
        log = cluster.partition(2).log
        assert (log.log_end_offset, log.recovery_point) == (2, 0)
        await until_async(lambda: cluster.partition(1).log.recovery_point == 2, "the leader flushed its own")
        assert (cluster.partition(1).log.high_watermark, written.done()) == (0, False)
        assert (await (await cluster.client(2)).call("api_versions", 0, ApiVersionsRequest())).error_code == 0, (
            "the loop of the follower goes on"
        )
        assert not written.done()
        gate.is_open.set()
        assert (await written).error_code == 0
        assert log.recovery_point == 2

    play(tmp_path, case, (1, 2), log_flush_interval_messages="1")


def test_f14_a_follower_that_leads_before_its_flush_ended_commits_then(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def case(cluster: Cluster) -> None:
        gate = FlushGate(monkeypatch, tmp_path / "2")
        await cluster.order(T0, State(1, [1, 2], replicas=[1, 2]), is_new=True)
        written = asyncio.create_task(cluster.produce(1, b"a", b"b"))
        await gate.waiting.wait()
        await cluster.order(T0, State(2, [2], leader_epoch=1, partition_epoch=1, replicas=[1, 2]), to=[2])
        partition = cluster.partition(2)
        assert partition.is_leader
        assert (partition.log.high_watermark, partition.held_offset) == (0, 0)
        gate.is_open.set()
        await until_async(lambda: partition.log.high_watermark == 2, "it is committed once it is flushed")
        assert partition.log.recovery_point == 2
        written.cancel()

    play(tmp_path, case, (1, 2), log_flush_interval_messages="1")


async def told(cluster: Cluster, number: int) -> dict[str, float]:
    """The metrics of a broker, by name and labels."""
    monitor = cluster.brokers[number].monitor
    assert monitor is not None
    host, _, port = monitor.address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(b"GET /metrics HTTP/1.0\r\n\r\n")
    lines = (await reader.read()).decode().partition("\r\n\r\n")[2].splitlines()
    writer.close()
    return {line.rpartition(" ")[0]: float(line.rpartition(" ")[2]) for line in lines if not line.startswith("#")}


def test_metrics_of_leader_and_followers(tmp_path: Path) -> None:
    """Replicated bytes, fetches of followers, under-replication, lag, and changes of the ISR."""

    async def case(cluster: Cluster) -> None:
        await cluster.order(T0, State(1, [1, 2, 3]), is_new=True)
        await cluster.produce(1, b"v" * 1000)
        await cluster.until_equal(1, 2, 3)
        size = cluster.partition(1).log.size_bytes
        leader, follower = await told(cluster, 1), await told(cluster, 2)
        assert leader["kafka_server_brokertopicmetrics_replicationbytesout_total"] == 2 * size
        assert follower["kafka_server_brokertopicmetrics_replicationbytesin_total"] == size
        assert follower["kafka_server_brokertopicmetrics_bytesin_total"] == 0
        versions = [
            value
            for name, value in leader.items()
            if name.startswith('kafka_network_requestmetrics_requests_total{request="FetchFollower"')
        ]
        assert sum(versions) >= 2
        assert leader["kafka_server_replicamanager_underreplicatedpartitions"] == 0
        assert leader['kafka_cluster_partition_insyncreplicascount{topic="t",partition="0"}'] == 3
        assert follower['kafka_cluster_partition_insyncreplicascount{topic="t",partition="0"}'] == 0
        assert follower['kafka_server_replicafetchermanager_maxlag{clientId="Replica"}'] == 0
        assert leader['kafka_server_replicafetchermanager_minfetchrate{clientId="Replica"}'] == 0

        with deaf(cluster, 3):
            await cluster.produce(1, b"v", acks=1)
            await until_async(lambda: cluster.partition(1).isr == (1, 2))
            leader = await told(cluster, 1)
            assert leader["kafka_server_replicamanager_isrshrinks_total"] == 1
            assert leader["kafka_server_replicamanager_underreplicatedpartitions"] == 1
            assert leader['kafka_cluster_partition_underreplicated{topic="t",partition="0"}'] == 1
        await until_async(lambda: set(cluster.partition(1).isr) == {1, 2, 3})
        leader = await told(cluster, 1)
        assert leader["kafka_server_replicamanager_isrexpands_total"] == 1
        assert leader["kafka_server_replicamanager_underreplicatedpartitions"] == 0

    play(tmp_path, case, metrics_listener="127.0.0.1:0", replica_lag_time_max_ms="2000")
