"""Groups in a cluster: members whose coordinators move, die and return with the leadership of their partition.

Owns: how a member finds its coordinator, and whose answers count. A replaced coordinator that does not know it yet answers
heartbeats and lookups from memory, as Kafka's does; such an answer counts as lost. Commits count whoever acknowledges them: only
a current leader can have them replicated.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence
from typing import Any, Final

from ottla.broker.coordinators.group_shards import OFFSETS_TOPIC
from ottla.client.connection import ClientConnection
from ottla.coordinator.shard import positive_hash
from ottla.errors import ErrorCode
from ottla.ports import Network
from ottla.protocol.messages.find_coordinator import FindCoordinatorRequest
from ottla.sim.actors.groups import Groups
from ottla.sim.actors.member import Member
from ottla.sim.actors.workload import Workload
from ottla.sim.kernel.node import Node
from ottla.sim.models.cluster_rules import ClusterRules
from ottla.sim.models.group_model import GroupModel, Membership
from ottla.sim.violation import require
from ottla.types import TopicPartition

PATIENCE_S: Final = 15.0
"""Longer than a rebalance lasts."""
ELSEWHERE: Final = frozenset({ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE})
Reign = tuple[int, int]
"""Port of the coordinating broker, and its leader epoch."""


class Witness:
    """Knows the coordinator of a group, by the tree and by the broker's own view at the same moment."""

    def __init__(self, nodes: Sequence[Node], rules: ClusterRules) -> None:
        self._by_id = {node.number: node for node in nodes}
        self._rules = rules

    def coordinator(self, group_id: str) -> Reign | None:
        numbers = [number for topic, number in self._rules.partitions() if topic == OFFSETS_TOPIC]
        if not numbers:
            return None
        number = positive_hash(group_id) % len(numbers)
        state = self._rules.state((OFFSETS_TOPIC, number))
        node = self._by_id.get(state.leader) if state is not None else None
        if state is None or node is None or node.broker is None:
            return None
        partition = node.broker.partitions.find(TopicPartition(OFFSETS_TOPIC, number))
        if partition is None or not partition.is_leader or partition.leader_epoch != state.leader_epoch:
            return None
        return node.port, state.leader_epoch


class ClusterMember(Member):
    def __init__(
        self,
        model: GroupModel,
        membership: Membership,
        shared: Workload,
        network: Network,
        ports: Sequence[int],
        witness: Witness,
    ) -> None:
        super().__init__(model, membership, shared, network, lambda _: 0)
        self._ports = ports
        self._port = ports[0]
        self._witness = witness

    async def connection(self) -> ClientConnection:
        if self._connection is None or self._connection.closed:
            async with asyncio.timeout(5.0):
                self._connection = await ClientConnection.open(self._network, "127.0.0.1", self._port, client_id=self.name)
        return self._connection

    async def call(self, api: str, version: int, request: object) -> Any:
        before = self._witness.coordinator(self.model.group_id)
        try:
            connection = await self.connection()
            async with asyncio.timeout(PATIENCE_S):
                response = await connection.call(api, version, request)
        except OSError as error:  # TimeoutError is one
            self._go_elsewhere()
            raise ConnectionError(f"{api}: no answer") from error
        after = self._witness.coordinator(self.model.group_id)
        if api not in ("find_coordinator", "offset_commit") and (before is None or before != after or after[0] != self._port):
            self._go_elsewhere()  # its answer may be from memory
            raise ConnectionError(f"{api}: answered by one that may not be the coordinator")
        return response

    def _go_elsewhere(self) -> None:
        self._knows_coordinator = False
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def went_well(self, code: int, what: str, *allowed: ErrorCode) -> bool:
        require(code != ErrorCode.UNKNOWN_SERVER_ERROR, "error", f"{self.name}: {what} is answered with UNKNOWN_SERVER_ERROR")
        fine = super().went_well(code, what, ErrorCode.NOT_COORDINATOR, *allowed)
        if code in ELSEWHERE:
            self._go_elsewhere()
        return fine

    async def find_coordinator(self) -> bool:
        if not self._knows_coordinator:
            self._port = self.rng.choice(self._ports)
            request = FindCoordinatorRequest(coordinator_keys=[self.model.group_id])
            found = (await self.call("find_coordinator", self.rng.choice((4, 5, 6)), request)).coordinators[0]
            self._go_elsewhere()
            if self.went_well(found.error_code, "find the coordinator of"):
                self._port = found.port
                self._knows_coordinator = True
        return self._knows_coordinator


class ClusterGroups(Groups):
    def __init__(
        self,
        rng: random.Random,
        shared: Workload,
        settings: dict[str, str],
        now: Callable[[], float],
        topics: Sequence[str],
        ports: Sequence[int],
        witness: Witness,
    ) -> None:
        super().__init__(rng, shared, settings, now)
        # The next coordinator does not know a generation that was not written.
        shared.disk_is_sound = False
        for model in self.models:
            model.topics = tuple(topics[: len(model.topics)])
        self._ports = ports
        self._witness = witness

    def _member(self, model: GroupModel, membership: Membership, network: Network) -> Member:
        return ClusterMember(model, membership, self.shared, network, self._ports, self._witness)

    def position(self, group_id: str) -> int:
        return 0

    async def _keep(self, keeper: Member) -> None:
        kind = self.rng.random()
        if not await keeper.find_coordinator():
            return
        if kind < 0.6:
            await keeper.fetch_offsets()
        elif kind < 0.8:
            await self._delete_offsets(keeper)
