"""A connection to several brokers that sends each request to the leader or coordinator it belongs to.

It has the interface of `ClientConnection`. A request for several brokers is split, and the responses are merged. It caches
nothing: leaders and coordinators are looked up before each request.
"""

from __future__ import annotations

import asyncio
from copy import copy
from typing import Any

from ottla.client.connection import ClientConnection
from ottla.metrics import Counters
from ottla.protocol.messages.describe_transactions import DescribeTransactionsRequest
from ottla.protocol.messages.find_coordinator import FindCoordinatorRequest
from ottla.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from ottla.runtime.network import RealNetwork

GROUP, TRANSACTION = 0, 1

OF_ONE_GROUP = (
    "consumer_group_heartbeat",
    "heartbeat",
    "join_group",
    "leave_group",
    "offset_commit",
    "offset_delete",
    "sync_group",
    "txn_offset_commit",
)
OF_GROUPS = {
    "consumer_group_describe": ("group_ids", "groups"),
    "delete_groups": ("groups_names", "results"),
    "describe_groups": ("groups", "groups"),
    "offset_fetch": ("groups", "groups"),
}
"""What they are asked of, and where the answers are."""


class Router:
    def __init__(self, first: ClientConnection, client_id: str | None = None) -> None:
        self._first = first
        self._client_id = client_id
        self._others: dict[int, ClientConnection] = {}

    @classmethod
    async def open(cls, host: str, port: int, client_id: str | None = None) -> Router:
        return cls(await ClientConnection.open(RealNetwork(Counters()), host, port, client_id=client_id), client_id)

    def close(self) -> None:
        for connection in (self._first, *self._others.values()):
            connection.close()

    def send(self, api: str, version: int, request: Any) -> asyncio.Future[Any]:
        return asyncio.ensure_future(self.call(api, version, request))

    async def call(self, api: str, version: int, request: Any) -> Any:
        if api in ("init_producer_id", "add_offsets_to_txn", "end_txn"):
            return await (await self._coordinator(TRANSACTION, request.transactional_id)).call(api, version, request)
        if api == "add_partitions_to_txn":
            name = request.v3_and_below_transactional_id
            return await (await self._coordinator(TRANSACTION, name)).call(api, version, request)
        if api in OF_ONE_GROUP or (api == "offset_fetch" and not request.groups):
            return await (await self._coordinator(GROUP, request.group_id)).call(api, version, request)
        if api in OF_GROUPS:
            return await self._of_groups(api, version, request)
        if api == "list_groups":
            answers = [await connection.call(api, version, request) for connection in await self._all()]
            return replace(answers[0], groups=[each for answer in answers for each in answer.groups])
        if api == "describe_transactions":
            return await self._describe_transactions(version, request)
        if api == "list_transactions":
            answers = [await connection.call(api, version, request) for connection in await self._all()]
            return replace(answers[0], transaction_states=[each for answer in answers for each in answer.transaction_states])
        if api == "list_offsets":
            return await self._list_offsets(version, request)
        if api == "create_topics":
            return await (await self._controller()).call(api, version, request)
        if api in ("produce", "fetch", "describe_producers"):
            return await (await self._leader(*_place(api, request))).call(api, version, request)
        return await self._first.call(api, version, request)

    async def _of_groups(self, api: str, version: int, request: Any) -> Any:
        asked, told = OF_GROUPS[api]
        answers = [
            await (await self._coordinator(GROUP, group if isinstance(group, str) else group.group_id)).call(
                api, version, replace(request, **{asked: [group]})
            )
            for group in getattr(request, asked)
        ]
        return replace(answers[0], **{told: [each for answer in answers for each in getattr(answer, told)]})

    async def _describe_transactions(self, version: int, request: Any) -> Any:
        answers = [
            await (await self._coordinator(TRANSACTION, name)).call(
                "describe_transactions", version, DescribeTransactionsRequest(transactional_ids=[name])
            )
            for name in request.transactional_ids
        ]
        return replace(answers[0], transaction_states=[each for answer in answers for each in answer.transaction_states])

    async def _list_offsets(self, version: int, request: Any) -> Any:
        (topic,) = request.topics
        answers = [
            await (await self._leader(topic.name, partition.partition_index)).call(
                "list_offsets", version, replace(request, topics=[replace(topic, partitions=[partition])])
            )
            for partition in topic.partitions
        ]
        partitions = [each for answer in answers for each in answer.topics[0].partitions]
        return replace(answers[0], topics=[replace(answers[0].topics[0], partitions=partitions)])

    async def _coordinator(self, kind: int, key: str) -> ClientConnection:
        asked = FindCoordinatorRequest(key_type=kind, coordinator_keys=[key])
        (found,) = (await self._first.call("find_coordinator", 4, asked)).coordinators
        return self._first if found.error_code else await self._to(found.node_id, found.host, found.port)

    async def _leader(self, topic: str, partition: int) -> ClientConnection:
        asked = MetadataRequest(topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False)
        told = await self._first.call("metadata", 9, asked)
        leaders = {each.partition_index: each.leader_id for each in told.topics[0].partitions}
        for broker in told.brokers:
            if broker.node_id == leaders.get(partition):
                return await self._to(broker.node_id, broker.host, broker.port)
        return self._first

    async def _controller(self) -> ClientConnection:
        told = await self._first.call("metadata", 9, MetadataRequest(topics=[]))
        (found,) = [broker for broker in told.brokers if broker.node_id == told.controller_id]
        return await self._to(found.node_id, found.host, found.port)

    async def _all(self) -> list[ClientConnection]:
        told = await self._first.call("metadata", 9, MetadataRequest(topics=[]))
        return [await self._to(broker.node_id, broker.host, broker.port) for broker in told.brokers]

    async def _to(self, number: int, host: str, port: int) -> ClientConnection:
        if number not in self._others:
            self._others[number] = await ClientConnection.open(RealNetwork(Counters()), host, port, client_id=self._client_id)
        return self._others[number]


def replace(message: Any, **fields: Any) -> Any:
    """A copy of the message with these fields changed."""
    other = copy(message)
    for name, value in fields.items():
        setattr(other, name, value)
    return other


def _place(api: str, request: Any) -> tuple[str, int]:
    if api == "produce":
        return request.topic_data[0].name, request.topic_data[0].partition_data[0].index
    if api == "fetch":
        return request.topics[0].topic, request.topics[0].partitions[0].partition
    return request.topics[0].name, request.topics[0].partition_indexes[0]
