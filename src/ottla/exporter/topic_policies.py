"""The cleanup policy of each topic. It seldom changes: read again after some minutes, and for new topics."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from ottla.client.brokers import BrokerFailed, Brokers, Unsupported
from ottla.errors import error_name
from ottla.exporter.reading import ClusterReading
from ottla.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource

_TOPIC: Final = 2
_SETTING: Final = "cleanup.policy"
MAX_AGE_S: Final = 300.0


class TopicPolicies:
    def __init__(self, brokers: Brokers, now_s: Callable[[], float]) -> None:
        self._brokers = brokers
        self._now_s = now_s
        self._known: dict[str, str] = {}
        self._read_at = float("-inf")

    async def fill(self, reading: ClusterReading) -> None:
        if self._now_s() - self._read_at >= MAX_AGE_S:
            self._known, self._read_at = {}, self._now_s()
        missing = [name for name in reading.topics if name not in self._known]
        if missing:
            await self._read(missing, reading.notes)
        for name, topic in reading.topics.items():
            topic.cleanup_policy = self._known.get(name)

    async def _read(self, names: list[str], notes: list[str]) -> None:
        resources = [
            DescribeConfigsResource(resource_type=_TOPIC, resource_name=name, configuration_keys=[_SETTING]) for name in names
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
            for setting in result.configs:
                if setting.name == _SETTING and setting.value is not None:
                    self._known[result.resource_name] = setting.value
