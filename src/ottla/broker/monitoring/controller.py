"""The controller: whether it is this broker, what it knows of the cluster, and the elections it held."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

from ottla.broker.controller.controller_state import ControllerState
from ottla.cluster.image import NO_LEADER, ClusterImage, PartitionImage
from ottla.metrics.family import PAUSE, Distribution, Family, quantile_families, single
from ottla.metrics.histogram import TIME_BOUNDS_S, Histogram
from ottla.metrics.table import CONTROLLER, METRICS

_TURN = 1000
"""Partitions that are looked at between two pauses."""


class ControllerCollector:
    """As in Kafka, a broker that is not the controller tells 0."""

    def __init__(self, state: ControllerState) -> None:
        self._state = state
        self.took_s = Histogram(TIME_BOUNDS_S)
        """How long changes took in which partitions got other leaders."""
        self.waited_s = Histogram(TIME_BOUNDS_S)
        """How long changes waited for those before them."""
        self._unclean = 0
        self._counted: ClusterImage | None = None
        self._offline = self._imbalanced = self._partitions = 0
        state.on_change = self._changed
        state.lock.on_wait = self.waited_s.add

    def _changed(self, before: ClusterImage, after: ClusterImage, began: float) -> None:
        elections = 0
        for name, topic in after.topics.items():
            known = before.topics.get(name)
            if known is None or known is topic:
                continue
            for old, new in zip(known.partitions, topic.partitions, strict=False):
                if _is_election(old, new):
                    elections += 1
                    self._unclean += new.leader not in old.isr
        if elections:
            self.took_s.add(asyncio.get_running_loop().time() - began)

    def __call__(self) -> Iterator[Family]:
        state = self._state
        image = state.image if state.is_active else ClusterImage("")
        if image is not self._counted:
            yield from self._count(image)
        yield single(METRICS[f"{CONTROLLER}_activecontrollercount"], int(state.is_active))
        yield single(METRICS[f"{CONTROLLER}_offlinepartitionscount"], self._offline)
        yield single(METRICS[f"{CONTROLLER}_preferredreplicaimbalancecount"], self._imbalanced)
        yield single(METRICS[f"{CONTROLLER}_globaltopiccount"], len(image.topics))
        yield single(METRICS[f"{CONTROLLER}_topicstodeletecount"], len(state.deleting))
        yield single(METRICS[f"{CONTROLLER}_globalpartitioncount"], self._partitions)
        yield single(METRICS[f"{CONTROLLER}_activebrokercount"], len(image.brokers))
        yield single(METRICS["kafka_controller_controllereventmanager_eventqueuesize"], state.waiting)
        yield single(METRICS["kafka_controller_controllerstats_uncleanleaderelections_total"], self._unclean)
        waits = Distribution((), TIME_BOUNDS_S, self.waited_s.counts, self.waited_s.recent(), self.waited_s.sum)
        yield from quantile_families(METRICS["kafka_controller_controllereventmanager_eventqueuetimems"], [waits], 1000)
        elections = Distribution((), TIME_BOUNDS_S, self.took_s.counts, self.took_s.recent(), self.took_s.sum)
        yield from quantile_families(METRICS["kafka_controller_controllerstats_leaderelectionrateandtimems"], [elections], 1000)

    def _count(self, image: ClusterImage) -> Iterator[Family]:
        offline = imbalanced = number = 0
        for topic in image.topics.values():
            for partition in topic.partitions:
                number += 1
                offline += partition.leader == NO_LEADER
                imbalanced += partition.leader != partition.replicas[0]
                if number % _TURN == 0:
                    yield PAUSE
        self._offline, self._imbalanced, self._partitions, self._counted = offline, imbalanced, number, image


def _is_election(old: PartitionImage, new: PartitionImage) -> bool:
    return new.leader != old.leader and new.leader != NO_LEADER
