"""What clients have pushed about themselves (KIP-714). Names and labels are the clients': they are in no table."""

from __future__ import annotations

from collections.abc import Iterator

from ottla.broker.telemetry.telemetry import Telemetry
from ottla.metrics.family import Family, label_text, single
from ottla.metrics.table import METRICS


def telemetry_families(telemetry: Telemetry) -> Iterator[Family]:
    yield single(METRICS["kafka_server_client_metrics_instance_count"], telemetry.instance_count())
    for each in telemetry.families():
        samples = ((label_text(*zip(*labels, strict=True)), value) for labels, value in each.samples)
        yield Family(each.name, each.type, each.help, samples)
