"""The latest values that clients have pushed. Bounded in all directions: clients choose names, labels and their number.

1. A client that is silent for three intervals, a minute at least, is forgotten with all its series.
2. There are at most `SERIES_MAX` series in all, `CLIENT_SERIES_MAX` of a client. Further ones are left out and counted. A client
   without series is not kept.
3. Every name begins with `kafka_client_`: no client can imitate a metric of the broker.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

from ottla.broker.telemetry.instances import Client, Instance
from ottla.broker.telemetry.otlp import Labels, Point
from ottla.cluster.znodes import uuid_text

SERIES_MAX: Final = 20_000
CLIENT_SERIES_MAX: Final = 1_000
_SILENCE_MS_MIN: Final = 60_000
_INTERVALS_OF_SILENCE: Final = 3
_CHARS_MAX: Final = 200
"""Of a name, of a label's name, of its value."""
_LABELS_MAX: Final = 12
_PREFIX: Final = "kafka_client_"
_KAFKA: Final = "org.apache.kafka."
_ILLEGAL: Final = re.compile(r"[^a-zA-Z0-9_]")

SeriesKey = tuple[str, Labels]


@dataclass(slots=True)
class Series:
    value: float
    is_counter: bool
    help: str


@dataclass(slots=True)
class _Shown:
    """A client and its series."""

    client: Client
    heard_at_ms: float = 0.0
    interval_ms: int = 0
    series: dict[SeriesKey, Series] = field(default_factory=dict)

    def is_silent(self, now_ms: float) -> bool:
        return now_ms - self.heard_at_ms > max(_SILENCE_MS_MIN, _INTERVALS_OF_SILENCE * self.interval_ms)

    @property
    def labels(self) -> Labels:
        client = self.client
        return (
            ("client_id", client.client_id[:_CHARS_MAX]),
            ("client_instance_id", uuid_text(client.instance_id)),
            ("client_software_name", client.software_name[:_CHARS_MAX]),
            ("client_software_version", client.software_version[:_CHARS_MAX]),
        )


@dataclass(frozen=True, slots=True)
class MetricFamily:
    """All series of one name: (labels, value)."""

    name: str
    type: str
    """counter or gauge."""
    help: str
    samples: list[tuple[Labels, float]]


class ClientMetrics:
    def __init__(self, on_left_out: Callable[[int], None] = lambda count: None) -> None:
        self._clients: dict[bytes, _Shown] = {}
        self._count = 0
        self._on_left_out = on_left_out

    def __len__(self) -> int:
        """The number of clients."""
        return len(self._clients)

    def add(self, instance: Instance, points: Iterable[Point], now_ms: float) -> None:
        """Take what a client has pushed, as far as it is subscribed to it."""
        self.forget_silent(now_ms)
        client = instance.client
        shown = self._clients.get(client.instance_id) or _Shown(client)
        shown.client, shown.heard_at_ms, shown.interval_ms = client, now_ms, instance.interval_ms
        left_out = sum(not self._set(shown, point) for point in points if instance.is_subscribed(point.name))
        if shown.series:
            self._clients[client.instance_id] = shown
        if left_out:
            self._on_left_out(left_out)

    def forget_silent(self, now_ms: float) -> None:
        for instance_id in [each for each, shown in self._clients.items() if shown.is_silent(now_ms)]:
            self._count -= len(self._clients.pop(instance_id).series)

    def families(self) -> Iterator[MetricFamily]:
        by_name: dict[str, list[tuple[Labels, Series]]] = {}
        for shown in self._clients.values():
            labels = shown.labels
            for (name, own), series in shown.series.items():
                by_name.setdefault(name, []).append((labels + own, series))
        for name, found in sorted(by_name.items()):
            kind = "counter" if all(series.is_counter for _, series in found) else "gauge"
            yield MetricFamily(name, kind, found[0][1].help, [(labels, series.value) for labels, series in found])

    def _set(self, shown: _Shown, point: Point) -> bool:
        """False if there is no room for another series."""
        if not math.isfinite(point.value):
            return True
        key = metric_name(point.name), _labels(point.labels)
        known = shown.series.get(key)
        if known is not None:
            known.value = known.value + point.value if point.is_delta else point.value
            return True
        if self._count >= SERIES_MAX or len(shown.series) >= CLIENT_SERIES_MAX:
            return False
        shown.series[key] = Series(point.value, point.is_counter, point.description[:_CHARS_MAX] or point.name[:_CHARS_MAX])
        self._count += 1
        return True


def metric_name(name: str) -> str:
    """`org.apache.kafka.producer.record.send.total` is `kafka_client_producer_record_send_total`."""
    return _PREFIX + _ILLEGAL.sub("_", name.removeprefix(_KAFKA))[:_CHARS_MAX]


_RESERVED: Final = frozenset({"client_id", "client_instance_id", "client_software_name", "client_software_version"})


def _labels(given: Labels) -> Labels:
    """In the order of their names, without those that say who the client is. Of two with one name, the last."""
    found: dict[str, str] = {}
    for name, value in given[:_LABELS_MAX]:
        legal = _ILLEGAL.sub("_", name[:_CHARS_MAX]).lstrip("_")
        if legal and legal not in _RESERVED:
            found[legal if not legal[0].isdigit() else f"label_{legal}"] = value[:_CHARS_MAX]
    return tuple(sorted(found.items()))
