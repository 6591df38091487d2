"""Which version of a pipeline is live, and the steps that make another one live. Talks to the cluster, needs no Spark.

The rules are in docs/adr/0010. `takeover` is the other side: what a driver does about them.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from ottla.client.blocking import BrokerAway, Client
from ottla.client.offsets import committed_offsets
from ottla.client.transactions import (
    CommittedOffset,
    GroupOffsets,
    add_offsets,
    end_txn,
    init_producer_id,
    txn_offset_commit,
)
from ottla.errors import ErrorCode, KafkaError
from ottla.pipelines.checkpoint import PartitionOffsets
from ottla.pipelines.failure import PipelineError
from ottla.pipelines.marker import FIRST, Hold, Marker, is_replaced, live, marker_in, not_begun, number_of
from ottla.pipelines.project import Project
from ottla.types import ProducerIdAndEpoch, TopicPartition

HOLD_MS = 60_000
_TIMEOUT_MS = 20_000
_ATTEMPTS = 50
_COMMIT_S = 2.0
"""A driver that lives commits a transaction in milliseconds."""


@dataclass(frozen=True)
class Progress:
    """What the group of a flow says: how far it is, and under which marker."""

    offsets: GroupOffsets
    marker: Marker | None
    place: TopicPartition | None
    """The partition whose offset has the marker."""
    producer: ProducerIdAndEpoch | None = None
    """Of a hold: drivers with an older epoch are fenced."""


def progress(client: Client, group_id: str, query_id: str | None = None, *, stable: bool = True) -> Progress:
    """With `stable` it waits for transactions that hold offsets of the group open. `query_id` is that of the live checkpoint."""
    committed = committed_offsets(client, group_id, require_stable=stable)
    markers = {where: found for where, entry in committed.items() if (found := marker_in(entry.metadata)) is not None}
    newest = live(markers.values(), query_id)
    place = next((where for where, found in markers.items() if found == newest), None)
    return Progress(committed, newest, place)


def end_dead_transactions(client: Client, project: Project, flows: Iterable[str]) -> None:
    """Abort what a killed driver left between TxnOffsetCommit and EndTxn. Its flow could not be read until it times out."""
    for flow in flows:
        group_id = project.group_id(flow)
        try:
            committed_offsets(client, group_id)  # its coordinator may have to be made first, which takes longer
            committed_offsets(client, group_id, require_stable=True, timeout_s=_COMMIT_S)
        except (KafkaError, BrokerAway) as error:
            # Any other error comes again when the progress is read, with more patience.
            if isinstance(error, KafkaError) and error.code == ErrorCode.UNSTABLE_OFFSET_COMMIT:
                init_producer_id(client, group_id, project.transaction_timeout_ms)


def live_project(client: Client, project: Project, flows: Iterable[str], *, stable: bool = True) -> Project:
    """The project with the live version and the generations of these flows' checkpoints."""
    version, generations = FIRST, {}
    for flow in flows:
        marker = progress(client, project.group_id(flow), stable=stable).marker
        if marker is None:
            continue
        if number_of(marker.version) > number_of(version):
            version = marker.version
        if marker.generation != FIRST:
            generations[flow] = marker.generation
    return replace(project, version=version, generations=generations)


def check_known(client: Client, project: Project, flows: Iterable[str], kept: Iterable[str]) -> None:
    """PipelineError if the cluster has forgotten which version is live. `kept` are the versions in the storage."""
    if project.version != FIRST or all(number_of(name) <= number_of(FIRST) for name in kept):
        return
    if all(progress(client, project.group_id(flow)).marker is None for flow in flows):
        raise PipelineError(
            f"which version of pipeline {project.name} is live is not known: the committed offsets of its groups are gone",
            hint="they expire after offsets.retention.minutes without a run; move the storage away, and start again",
        )


class Switch:
    """One attempt to make another version live. A second one, or a driver that takes over, fences it."""

    def __init__(self, client: Client, project: Project, version: str) -> None:
        """`project` is that of the live version."""
        self.client, self.project, self.version = client, project, version
        self._producer: ProducerIdAndEpoch = init_producer_id(client, project.switch_id, _TIMEOUT_MS)

    def hold(self, flow: str, starting: PartitionOffsets, query_id: str | None) -> Progress:
        """Hold the flow: no batch of the live version is committed any more. `starting` is for a flow that never ran, `query_id`
        that of the live checkpoint."""
        group_id = self.project.group_id(flow)
        for attempt in range(_ATTEMPTS):
            producer = init_producer_id(self.client, group_id, _TIMEOUT_MS)
            found = self._checked(flow, progress(self.client, group_id, query_id))
            marker = found.marker or not_begun(self.project.version, self.project.generation(flow))
            held = marker._replace(hold=Hold(self.version, int(time.time() * 1000) + HOLD_MS))
            offsets = dict(found.offsets) or {where: CommittedOffset(offset) for where, offset in starting.items()}
            if not offsets:
                raise PipelineError(
                    f"flow {flow!r} has never run and its topics have no partitions", hint="run the pipeline first, then upgrade"
                )
            place = found.place or min(offsets)
            offsets[place] = CommittedOffset(offsets[place].offset, str(held))
            try:
                self._commit(group_id, producer, {group_id: offsets if found.place is None else {place: offsets[place]}})
                return Progress(offsets, held, place, producer)
            except KafkaError:
                # The old driver began another batch in between.
                if attempt + 1 == _ATTEMPTS:
                    raise
        raise AssertionError("unreachable")

    def _checked(self, flow: str, found: Progress) -> Progress:
        if found.marker is not None and is_replaced(self.project.version, found.marker):
            raise PipelineError(
                f"flow {flow!r}: version {number_of(found.marker.version)} went live meanwhile", hint="run the upgrade again"
            )
        return found

    def commit(self, flows: Mapping[str, GroupOffsets]) -> None:
        """Make the version live: these offsets and markers, by flow, in one transaction."""
        groups = {self.project.group_id(flow): offsets for flow, offsets in flows.items()}
        try:
            self._commit(self.project.switch_id, self._producer, groups)
        except (KafkaError, BrokerAway) as error:
            if all(self._is_live(flow) for flow in flows):
                return  # the answer was lost, the commit was not
            raise PipelineError(
                f"version {number_of(self.version)} did not go live: {error}",
                hint="a driver or another upgrade took over; nothing was switched: run the upgrade again",
            ) from error

    def _is_live(self, flow: str) -> bool:
        marker = progress(self.client, self.project.group_id(flow)).marker
        return marker is not None and marker.version == self.version

    def _commit(self, transactional_id: str, producer: ProducerIdAndEpoch, groups: Mapping[str, GroupOffsets]) -> None:
        for group_id, offsets in groups.items():
            add_offsets(self.client, transactional_id, producer, group_id)
            txn_offset_commit(self.client, transactional_id, producer, group_id, offsets)
        end_txn(self.client, transactional_id, producer, commit=True)


def switched(held: Progress, marker: Marker, offsets: PartitionOffsets | None = None) -> GroupOffsets:
    """The offsets to commit for a flow: no older marker stays in its group. Without `offsets` they are those of the hold."""
    found = {where: CommittedOffset(entry.offset) for where, entry in held.offsets.items()}
    if offsets:
        found.update({where: CommittedOffset(offset) for where, offset in offsets.items()})
        place = min(offsets)
    else:
        assert held.place is not None
        place = held.place
    found[place] = CommittedOffset(found[place].offset, str(marker))
    return found
