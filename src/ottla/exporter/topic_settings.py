"""Cleanup policy and retention of each topic. They seldom change: read again after some minutes, and for new topics."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from ottla.client.brokers import BrokerFailed, Brokers, Unsupported
from ottla.errors import error_name
from ottla.exporter.reading import ClusterReading
from ottla.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource

_TOPIC: Final = 2
_POLICY: Final = "cleanup.policy"
_RETENTION_MS: Final = "retention.ms"
_RETENTION_BYTES: Final = "retention.bytes"
MAX_AGE_S: Final = 300.0


class TopicSettings:
    def __init__(self, brokers: Brokers, now_s: Callable[[], float]) -> None:
        self._brokers = brokers
        self._now_s = now_s
        self._known: dict[str, dict[str, str]] = {}
        self._read_at = float("-inf")

    async def fill(self, reading: ClusterReading) -> None:
        if self._now_s() - self._read_at >= MAX_AGE_S:
            self._known, self._read_at = {}, self._now_s()
        missing = [name for name in reading.topics if name not in self._known]
        if missing:
            await self._read(missing, reading.notes)
        for name, topic in reading.topics.items():
            known = self._known.get(name, {})
            topic.cleanup_policy = known.get(_POLICY)
            topic.retention_ms = _number(known.get(_RETENTION_MS))
            topic.retention_bytes = _number(known.get(_RETENTION_BYTES))

    async def _read(self, names: list[str], notes: list[str]) -> None:
        keys = [_POLICY, _RETENTION_MS, _RETENTION_BYTES]
        resources = [
            DescribeConfigsResource(resource_type=_TOPIC, resource_name=name, configuration_keys=list(keys)) for name in names
        ]
        try:
            answer = await self._brokers.call_any("describe_configs", DescribeConfigsRequest(resources=resources))
        except Unsupported:
            return
        except BrokerFailed as failure:
            notes.append(f"settings of topics: {failure}")
            return
        refused = {each.error_code for each in answer.results if each.error_code}
        notes += [f"settings of topics: {error_name(code)}" for code in sorted(refused)]
        for result in answer.results:
            found = {each.name: each.value for each in result.configs if each.name in keys and each.value is not None}
            if found:
                self._known[result.resource_name] = found


def _number(value: str | None) -> int | None:
    return None if value is None else int(value)
