"""Client instances: what each is subscribed to, and whether it may ask or push now. Rules of KIP-714, no clock.

1. A client is subscribed to the metrics of all subscriptions that match it, at the shortest of their intervals.
2. The subscription id is the same on every broker for the same metrics, interval and instance, and another one for others.
3. A client may ask again after its push interval, or at once if a subscription has changed since.
4. A client may push after its interval, once before that if it has just asked, and once more when it terminates.
5. After a push that said it terminates, an instance is refused.
6. An instance belongs to a connection: on another one it begins anew, since Kafka forgets it when the connection closes.
7. At most `INSTANCES_MAX` are known; the one that was not heard for longest goes first.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from ottla.cluster.settings.client_metrics import ALL_METRICS, INTERVAL_MS_DEFAULT, MetricsSubscription, subscription_of
from ottla.cluster.znodes import uuid_text
from ottla.errors import ErrorCode, KafkaError
from ottla.patterns import matches
from ottla.records.crc import crc32c

INSTANCES_MAX: Final = 16_384
_NEVER: Final = float("-inf")

Configs = Mapping[str, Mapping[str, str]]


@dataclass(frozen=True, slots=True)
class Client:
    """What selectors of subscriptions know of a client."""

    instance_id: bytes
    client_id: str
    software_name: str
    software_version: str
    address: str
    port: int
    connection: int

    def attribute(self, selector: str) -> str:
        return {
            "client_instance_id": uuid_text(self.instance_id),
            "client_id": self.client_id,
            "client_software_name": self.software_name,
            "client_software_version": self.software_version,
            "client_source_address": self.address,
            "client_source_port": str(self.port),
        }[selector]


@dataclass(slots=True)
class Instance:
    client: Client
    configs: Configs
    """Those that the subscription is made of."""
    metrics: tuple[str, ...]
    interval_ms: int
    subscription_id: int
    asked_at_ms: float = _NEVER
    pushed_at_ms: float = _NEVER
    terminating: bool = False

    def is_subscribed(self, metric: str) -> bool:
        return self.metrics == (ALL_METRICS,) or metric.startswith(self.metrics)

    def may_ask(self, now_ms: float) -> bool:
        if now_ms - max(self.asked_at_ms, self.pushed_at_ms) < self.interval_ms:
            return False
        self.asked_at_ms = now_ms
        return True

    def may_push(self, now_ms: float) -> bool:
        # Right after asking too: clients add jitter to the first interval.
        if self.asked_at_ms <= self.pushed_at_ms and now_ms - self.pushed_at_ms < self.interval_ms:
            return False
        self.pushed_at_ms = now_ms
        return True


class ClientInstances:
    def __init__(self) -> None:
        self._instances: dict[bytes, Instance] = {}
        """In the order in which they were heard last."""

    def __len__(self) -> int:
        return len(self._instances)

    def asks(self, client: Client, configs: Configs, now_ms: float) -> Instance:
        """The subscription of a client. KafkaError if it asks too soon."""
        instance = self._instance(client, configs)
        if not instance.may_ask(now_ms):
            raise _too_soon(instance)
        return instance

    def pushes(self, client: Client, configs: Configs, now_ms: float, subscription_id: int, *, terminating: bool) -> Instance:
        """The subscription by which a client pushes. KafkaError if it must not."""
        instance = self._instance(client, configs)
        before, instance.terminating = instance.terminating, terminating
        if before:
            text = f"client instance {uuid_text(client.instance_id)} has said that it terminates and cannot push again"
            raise KafkaError(ErrorCode.INVALID_REQUEST, text)
        if not instance.may_push(now_ms) and not terminating:
            raise _too_soon(instance)
        if subscription_id != instance.subscription_id:
            raise KafkaError(ErrorCode.UNKNOWN_SUBSCRIPTION_ID, f"the subscription id is {instance.subscription_id}")
        return instance

    def _instance(self, client: Client, configs: Configs) -> Instance:
        """The known instance, or a new one if the connection or the subscriptions are others."""
        known = self._instances.pop(client.instance_id, None)
        if known is None or known.client.connection != client.connection:
            known = _subscribed(client, configs)
        elif known.configs is not configs and known.configs != configs:
            known = _subscribed(known.client, configs)
        self._instances[client.instance_id] = known
        if len(self._instances) > INSTANCES_MAX:
            del self._instances[next(iter(self._instances))]
        return known


def _subscribed(client: Client, configs: Configs) -> Instance:
    metrics: set[str] = set()
    interval_ms = INTERVAL_MS_DEFAULT
    for config in configs.values():
        subscription = subscription_of(config)
        if subscription is not None and _is_match(client, subscription):
            metrics.update(subscription.metrics)
            interval_ms = min(interval_ms, subscription.interval_ms)
    chosen = (ALL_METRICS,) if ALL_METRICS in metrics else tuple(sorted(metrics))
    return Instance(client, configs, chosen, interval_ms, _subscription_id(client.instance_id, chosen, interval_ms))


def _is_match(client: Client, subscription: MetricsSubscription) -> bool:
    return all(matches(pattern, client.attribute(name)) for name, pattern in subscription.selectors)


def _subscription_id(instance_id: bytes, metrics: tuple[str, ...], interval_ms: int) -> int:
    number = crc32c(",".join(metrics).encode() + str(interval_ms).encode()) ^ crc32c(instance_id)
    return number if number < 1 << 31 else number - (1 << 32)


def _too_soon(instance: Instance) -> KafkaError:
    return KafkaError(ErrorCode.THROTTLING_QUOTA_EXCEEDED, f"the push interval is {instance.interval_ms} ms")
