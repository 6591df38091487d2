"""The topic of published pipelines: created compacted, written without waiting for replicas, read from its start.

Knows keys and values as text and none of their meaning. All records are in partition 0, so the last one of a key wins.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from ottla.client.blocking import Client
from ottla.client.offsets import EARLIEST, LATEST, list_offsets
from ottla.client.topics import create_topic
from ottla.client.transactions import produce
from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.records.batch import scan_batches
from ottla.records.compression import LZ4
from ottla.records.own import own_batch
from ottla.records.record import read_records
from ottla.types import TopicPartition

TOPIC = "__ottla_pipelines"
_WHERE = TopicPartition(TOPIC, 0)
# Small segments: only closed ones are compacted, and a reader starts at the beginning.
_CONFIGS = {"cleanup.policy": "compact", "segment.bytes": str(4 << 20), "min.cleanable.dirty.ratio": "0.1"}
_REPLICAS_MAX = 3
_FETCH_VERSION_MAX = 12
"""From 13 on topics are named by id."""
_FETCH_BYTES = 4 << 20
_FETCH_WAIT_MS = 500
_READ_TIMEOUT_S = 30.0


def ensure(client: Client) -> None:
    """Create the topic if it does not exist, with up to three replicas."""
    if TOPIC not in client.describe([TOPIC]):
        create_topic(client, TOPIC, partitions=1, replicas_max=_REPLICAS_MAX, config=_CONFIGS)


def append(client: Client, records: Mapping[str, str | None]) -> None:
    """Write values by key; None removes a key."""
    if not records:
        return
    encoded = [(key.encode(), None if value is None else value.encode()) for key, value in records.items()]
    batch = own_batch(encoded, time.time_ns() // 1_000_000, LZ4).buffer
    produce(client, TOPIC, _WHERE.partition, batch, acks=1)


class Reader:
    """The latest value of each key. `poll` reads what was added since the last call."""

    def __init__(self, client: Client, *, from_end: bool = False) -> None:
        """`from_end`: only what is added from now on. The topic must exist."""
        self.client = client
        self._latest: dict[str, str] = {}
        self._next = self._offset(LATEST) if from_end else 0

    def poll(self) -> Mapping[str, str]:
        """The values by key, up to the end of the topic now. Empty if the topic does not exist."""
        if TOPIC not in self.client.describe([TOPIC]):
            self._restart(0)
            return self._latest
        start, end = (self._offset(position) for position in (EARLIEST, LATEST))
        if not start <= self._next <= end:
            self._restart(start)
        until = time.monotonic() + _READ_TIMEOUT_S
        while self._next < end:
            if time.monotonic() > until:
                raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, f"{_WHERE} returns no records at offset {self._next}")
            self._fetch()
        return self._latest

    def _restart(self, offset: int) -> None:
        """Begin anew: the topic was deleted, and perhaps created again."""
        self._next = offset
        self._latest.clear()

    def _offset(self, position: int) -> int:
        return list_offsets(self.client, {_WHERE: position})[_WHERE].offset

    def _fetch(self) -> None:
        part = FetchPartition(partition=_WHERE.partition, fetch_offset=self._next, partition_max_bytes=_FETCH_BYTES)
        topics = [FetchTopic(topic=TOPIC, partitions=[part])]
        request = FetchRequest(max_wait_ms=_FETCH_WAIT_MS, min_bytes=1, max_bytes=_FETCH_BYTES, topics=topics)
        answer = self.client.call_leader(TOPIC, _WHERE.partition, request, max_version=_FETCH_VERSION_MAX)
        data: Any = answer.responses[0].partitions[0].records or b""
        for info in scan_batches(data)[0]:
            for record in () if info.is_control else read_records(data, info):
                if record.offset >= self._next and record.key is not None:
                    self._set(_text(record.key), record.value)
            self._next = max(self._next, info.next_offset)

    def _set(self, key: str, value: bytes | None) -> None:
        if value is None:
            self._latest.pop(key, None)
        else:
            self._latest[key] = _text(value)


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")
