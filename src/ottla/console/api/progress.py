"""How far groups are, in all of their topics or in one."""

from __future__ import annotations

from typing import Any

from ottla.console.schema import INTEGER, NUMBER, STRING, document, maybe
from ottla.console.watch import lag_of, lag_s_of, lead_of
from ottla.exporter.consumption import GroupProgress, PartitionProgress
from ottla.exporter.reading import ClusterReading

READER_FIELDS = {
    "group": STRING,
    "state": STRING,
    "members": maybe(INTEGER),
    "lag": maybe(INTEGER),
    "lag_s": maybe(NUMBER),
    "lead": maybe(INTEGER),
}
MEMBERSHIP = document(
    topic=STRING,
    partition=INTEGER,
    committed=maybe(INTEGER),
    log_start=maybe(INTEGER),
    log_end=maybe(INTEGER),
    lag=maybe(INTEGER),
    lag_s=maybe(NUMBER),
    lead=maybe(INTEGER),
    lead_s=maybe(NUMBER),
    member=maybe(STRING),
    client=maybe(STRING),
    host=maybe(STRING),
)


def reader_document(progress: GroupProgress) -> dict[str, Any]:
    """A group, and its lag and lead in the topics of `progress`."""
    group = progress.group
    return {
        "group": group.name,
        "state": group.state or "Unknown",
        "members": None if group.members is None else len(group.members),
        "lag": lag_of(progress),
        "lag_s": lag_s_of(progress),
        "lead": lead_of(progress),
    }


def progress_document(reading: ClusterReading, each: PartitionProgress) -> dict[str, Any]:
    partition = reading.partition(each.topic, each.partition)
    committed = each.committed >= 0
    return {
        "topic": each.topic,
        "partition": each.partition,
        "committed": each.committed if committed else None,
        "log_start": None if partition is None else partition.log_start,
        "log_end": None if partition is None else partition.log_end,
        "lag": each.lag if committed else None,
        "lag_s": each.lag_s,
        "lead": each.lead,
        "lead_s": each.lead_s,
        "member": None if each.member is None else each.member.member_id,
        "client": None if each.member is None else each.member.client_id,
        "host": None if each.member is None else each.member.host,
    }
