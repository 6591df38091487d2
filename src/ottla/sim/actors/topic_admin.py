"""An administrator of one broker: creates, alters, extends and deletes topics, deletes records, moves replicas."""

from __future__ import annotations

import asyncio
from typing import Final

from ottla.errors import ErrorCode
from ottla.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from ottla.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from ottla.protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from ottla.protocol.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from ottla.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from ottla.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from ottla.sim.actors.client import GONE, Client
from ottla.sim.actors.workload import Topic
from ottla.sim.violation import require

SAME_NAME_S: Final = 60.0


class TopicAdmin(Client):
    def topic_config(self) -> dict[str, str]:
        rng = self.rng
        config = {
            "segment.bytes": rng.choice(("400", "1000", "5000", "100000")),
            "index.interval.bytes": rng.choice(("0", "50", "500", "4096")),
            "retention.ms": rng.choice(("-1", "60000", "604800000")),
            "retention.bytes": rng.choice(("-1", "-1", "2000")),
            "segment.ms": rng.choice(("10000", "604800000")),
            "file.delete.delay.ms": rng.choice(("0", "1000", "60000")),
        }
        if self.shared.has_compaction and rng.random() < 0.7:
            config["cleanup.policy"] = rng.choice(("compact", "compact", "compact,delete"))
            config["segment.bytes"] = rng.choice(("400", "1000", "2000"))
            config["min.cleanable.dirty.ratio"] = rng.choice(("0.01", "0.3"))
            config["delete.retention.ms"] = rng.choice(("2000", "86400000"))
            config["min.compaction.lag.ms"] = rng.choice(("0", "0", "3000"))
        if rng.random() < 0.4:
            config["flush.messages"] = rng.choice(("1", "1", "5"))
        if rng.random() < 0.3:
            config["flush.ms"] = rng.choice(("500", "5000"))
        return config

    async def create_topic(self, name: str | None = None) -> None:
        if name is None:
            name = f"t{self.shared.names}"
            self.shared.names += 1
        if name in self.shared.topics or len(self.shared.topics) >= 3:
            return
        config, count = self.topic_config(), self.rng.randint(1, 3)
        self.shared.trace.add(f"{self.name} create {name} {sorted(config.items())}")
        request = CreateTopicsRequest(
            topics=[
                CreatableTopic(
                    name=name,
                    num_partitions=count,
                    replication_factor=1,
                    configs=[CreatableTopicConfig(name=key, value=value) for key, value in config.items()],
                )
            ]
        )
        result = (await self.call("create_topics", 7, request)).topics[0]
        if self.expect(result.error_code, f"create {name}", ErrorCode.TOPIC_ALREADY_EXISTS):
            self.shared.topics[name] = Topic(name, bytes(result.topic_id), config)
            self.shared.topics[name].add_partitions(count, asyncio.get_running_loop().time)

    async def delete_topic(self) -> None:
        if len(self.shared.topics) < 2:
            return
        topic = self.rng.choice(list(self.shared.topics.values()))
        self.shared.trace.add(f"{self.name} delete {topic.name}")
        # Its outcome is open from now on; without an answer the next start shows it.
        del self.shared.topics[topic.name]
        self.shared.doubtful.append(topic)
        request = DeleteTopicsRequest(topics=[DeleteTopicState(name=topic.name)], timeout_ms=10_000)
        result = (await self.call("delete_topics", 6, request)).responses[0]
        self.expect(result.error_code, f"delete {topic.name}", *GONE)
        if self.rng.random() < 0.6:
            # Not at once: requests by name that are in flight would reach the wrong topic.
            await asyncio.sleep(SAME_NAME_S)
            await self.create_topic(topic.name)

    async def add_partitions(self) -> None:
        picked = self.shared.pick()
        if picked is None:
            return
        topic = picked[0]
        count = len(topic.partitions) + 1
        if count > 4:
            return
        request = CreatePartitionsRequest(
            topics=[CreatePartitionsTopic(name=topic.name, count=count, assignments=None)], timeout_ms=10_000
        )
        result = (await self.call("create_partitions", 3, request)).results[0]
        if self.expect(result.error_code, f"add a partition to {topic.name}", ErrorCode.INVALID_PARTITIONS, *GONE):
            topic.add_partitions(count, asyncio.get_running_loop().time)

    async def alter_topic(self) -> None:
        picked = self.shared.pick()
        if picked is None:
            return
        topic = picked[0]
        config = {
            "retention.ms": self.rng.choice(("-1", "30000", "604800000")),
            "retention.bytes": self.rng.choice(("-1", "1500")),
        }
        request = IncrementalAlterConfigsRequest(
            resources=[
                AlterConfigsResource(
                    resource_type=2,
                    resource_name=topic.name,
                    configs=[AlterableConfig(name=key, config_operation=0, value=value) for key, value in config.items()],
                )
            ]
        )
        result = (await self.call("incremental_alter_configs", 1, request)).responses[0]
        if self.expect(result.error_code, f"alter {topic.name}", *GONE):
            topic.config.update(config)

    async def delete_records(self) -> None:
        picked = self.shared.pick()
        if picked is None:
            return
        topic, index = picked
        model = topic.partitions[index]
        end = max((offset + sent.count for offset, sent in model.at.items()), default=0)
        offset = self.rng.choice((-1, self.rng.randint(0, end)))
        request = DeleteRecordsRequest(
            topics=[
                DeleteRecordsTopic(name=topic.name, partitions=[DeleteRecordsPartition(partition_index=index, offset=offset)])
            ],
            timeout_ms=10_000,
        )
        answer = (await self.call("delete_records", 2, request)).topics[0].partitions[0]
        allowed = (ErrorCode.OFFSET_OUT_OF_RANGE, *((ErrorCode.POLICY_VIOLATION,) if topic.is_compacted else ()))
        if self.expect(answer.error_code, f"delete records of {model.name}", *allowed, *GONE):
            require(
                answer.low_watermark >= offset,
                "delete-records",
                f"{model.name}: DeleteRecords below {offset} is answered with low watermark {answer.low_watermark}",
            )
            model.deleted_below = max(model.deleted_below, answer.low_watermark)
            self.shared.trace.add(f"{self.name} delete records of {model.name} below {offset}: {answer.low_watermark}")

    async def move_replica(self) -> None:
        """Move a replica to one of the broker's directories, perhaps its own."""
        picked = self.shared.pick()
        if picked is None:
            return
        topic, index = picked
        target = self.rng.choice(self.shared.log_dirs)
        asked = AlterReplicaLogDirTopic(name=topic.name, partitions=[index])
        request = AlterReplicaLogDirsRequest(dirs=[AlterReplicaLogDir(path=target, topics=[asked])])
        answer = (await self.call("alter_replica_log_dirs", self.rng.choice((1, 2)), request)).results[0].partitions[0]
        if self.expect(answer.error_code, f"move {topic.name}-{index}", ErrorCode.REPLICA_NOT_AVAILABLE, *GONE):
            self.shared.trace.add(f"{self.name} moves {topic.name}-{index} to {target}")

    async def administrate(self) -> None:
        if self.shared.log_dirs and self.rng.random() < 0.3:
            await self.move_replica()
            return
        kind = self.rng.random()
        if kind < 0.25:
            await self.create_topic()
        elif kind < 0.35:
            await self.delete_topic()
        elif kind < 0.45:
            await self.add_partitions()
        elif kind < 0.6:
            await self.alter_topic()
        elif kind < 0.9:
            await self.delete_records()
        else:
            # A long pause: timers expire, segments age.
            await asyncio.sleep(self.rng.choice((10, 100, 400)))
