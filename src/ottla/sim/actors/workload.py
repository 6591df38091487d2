"""What all clients of one broker share: the topics with the model of each partition, and how sound the disk is."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field

from ottla.sim.kernel.trace import Trace
from ottla.sim.models.keyed_model import KeyedModel
from ottla.sim.models.partition_model import PartitionModel, Sent


@dataclass(slots=True)
class Topic:
    name: str
    topic_id: bytes
    config: dict[str, str]
    partitions: list[PartitionModel] = field(default_factory=list)

    @property
    def is_compacted(self) -> bool:
        return "compact" in self.config.get("cleanup.policy", "")

    def add_partitions(self, count: int, now_s: Callable[[], float]) -> None:
        """Add partitions until there are `count`."""
        for index in range(len(self.partitions), count):
            name = f"{self.name}-{index}"
            if self.is_compacted:
                self.partitions.append(KeyedModel(name, self.topic_id, now_s=now_s, config=self.config))
            else:
                self.partitions.append(PartitionModel(name, self.topic_id))

    @property
    def flushes_each(self) -> bool:
        """Every record is flushed before it is acknowledged."""
        return self.config.get("flush.messages") == "1"


class Workload:
    """What all clients of a run share: the topics, the trace, and whether the disk fails."""

    def __init__(self, rng: random.Random, trace: Trace, port: int) -> None:
        self.rng = rng
        self.trace = trace
        self.port = port
        self.topics: dict[str, Topic] = {}
        self.disk_is_sound = True
        self.doubtful: list[Topic] = []
        """Topics whose deletion was requested and may have failed."""
        self.made = 0
        self.names = 0
        self.has_compaction = False
        self.log_dirs: list[str] = []
        """Directories that replicas are moved between; empty: they are not moved."""
        self.on_acknowledged: Callable[[Topic, PartitionModel, Sent, int], None] = lambda *_: None
        self.requests = 0

    def pick(self) -> tuple[Topic, int] | None:
        if not self.topics:
            return None
        topic = self.rng.choice(list(self.topics.values()))
        return topic, self.rng.randrange(len(topic.partitions))
