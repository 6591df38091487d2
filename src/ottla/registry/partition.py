"""The one partition of `_schemas`, as a Kafka client: its topic, and requests to its leader.

Owns the topic's settings (SR12) and where the leader is. Never retries: the reader and the writer know what a failure means.
"""

from __future__ import annotations

import logging
from typing import Any, Final

from ottla.client.blocking import Client
from ottla.client.brokers import BrokerFailed, Brokers, Request, Versions
from ottla.client.channel import error_code
from ottla.client.options import ClientOptions
from ottla.client.topics import create_topic, topic_config
from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.messages.find_coordinator import FindCoordinatorRequest
from ottla.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic

REPLICAS_MAX: Final = 3
GROUP, TRANSACTION = 0, 1
"""Types of coordinators."""
_METADATA_VERSIONS: Final = (4, 12)
_COORDINATOR_VERSIONS: Final = (1, 3)

logger = logging.getLogger("ottla.registry")


class WrongTopic(Exception):
    """The topic exists, and a registry must not use it as it is."""


def ensure_topic(options: ClientOptions, topic: str) -> str:
    """Create the topic if it does not exist: one partition, compacted, up to three replicas. WrongTopic if it is another.

    Returns the id of the cluster.
    """
    with Client(options) as client:
        cluster_id = client.call_any(MetadataRequest(topics=[])).cluster_id or ""
        if topic not in client.describe([topic]):
            create_topic(client, topic, partitions=1, replicas_max=REPLICAS_MAX, config={"cleanup.policy": "compact"})
        partitions = len(client.topic(topic).partitions)
        if partitions != 1:
            raise WrongTopic(f"topic {topic} has {partitions} partitions; a registry needs exactly one: use another --topic")
        try:
            policy = topic_config(client, topic, ["cleanup.policy"]).get("cleanup.policy")
        except KafkaError as error:
            if error.code != ErrorCode.TOPIC_AUTHORIZATION_FAILED:
                raise
            logger.warning("Cannot check that topic %s is compacted: this user may not describe its configs", topic)
            return str(cluster_id)
    if policy != "compact":
        raise WrongTopic(
            f"topic {topic} has cleanup.policy={policy}: schemas would be deleted; "
            f"run `ottla config set topic {topic} cleanup.policy=compact`"
        )
    return str(cluster_id)


class Partition:
    """Requests to the leader, and to coordinators.

    One that waits long holds up the others of the same instance: reader, writer and group member have one each.
    """

    def __init__(self, brokers: Brokers, topic: str) -> None:
        self._brokers = brokers
        self.topic = topic
        self._leader: int | None = None

    def __str__(self) -> str:
        return f"{self.topic}-0"

    async def call(self, api_name: str, request: Request, versions: Versions) -> Any:
        """The answer of the leader. BrokerFailed or KafkaError if there is none; the next call looks for it again."""
        if self._leader is None:
            self._leader = await self._find_leader()
        try:
            return await self._brokers.call(self._leader, api_name, request, versions=versions)
        except BrokerFailed:
            self._leader = None
            raise

    async def call_coordinator(self, key: str, kind: int, api_name: str, request: Request, versions: Versions) -> Any:
        """The answer of the coordinator of a group or a transactional id. BrokerFailed, KafkaError."""
        await self._learn_brokers([])
        find = FindCoordinatorRequest(key=key, key_type=kind)
        found = await self._brokers.call_any("find_coordinator", find, versions=_COORDINATOR_VERSIONS)
        if found.error_code:
            raise KafkaError(error_code(found.error_code), f"coordinator of {'group' if kind == GROUP else 'transactions'} {key}")
        return await self._brokers.call(found.node_id, api_name, request, versions=versions)

    def failed(self, code: int) -> KafkaError:
        """The error code of the partition, as an exception. The leader may be another one."""
        self._leader = None
        return KafkaError(error_code(code), str(self))

    async def _find_leader(self) -> int:
        for topic in await self._learn_brokers([self.topic]):
            if topic.error_code:
                raise KafkaError(error_code(topic.error_code), f"topic {self.topic}")
            for partition in topic.partitions:
                if partition.leader_id >= 0:
                    return int(partition.leader_id)
        raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, str(self))

    async def _learn_brokers(self, topics: list[str]) -> list[Any]:
        request = MetadataRequest(topics=[MetadataRequestTopic(name=name) for name in topics], allow_auto_topic_creation=False)
        answer = await self._brokers.call_any("metadata", request, versions=_METADATA_VERSIONS)
        self._brokers.learn({each.node_id: (each.host, each.port) for each in answer.brokers})
        return list(answer.topics)

    def close(self) -> None:
        self._brokers.close()
