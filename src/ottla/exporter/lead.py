"""Lead of a committed offset in seconds: the time until retention deletes the record that the group reads next. Reads no clock.

The rules:

1. By time: the record is deleted `retention.ms` after its timestamp. Its age is the group's lag in seconds.
2. By size: it is deleted once the records from it on take `retention.bytes`. They take the average size of the partition's
   records, and grow by what the last hour added. Without growth there is none, nor if the partition's size is not known.
3. The earlier of both counts. Without a record to read, and for a topic whose records are not deleted, there is no value.
4. A group whose offset is below the log start has lost records: 0.

Retention deletes whole segments, so the record may be there for longer.
"""

from __future__ import annotations

from ottla.exporter.reading import Partition, Topic

UNLIMITED = -1


def lead_s(
    topic: Topic, partition: Partition, lead: int, lag: int, lag_s: float | None, records_per_s: float | None
) -> float | None:
    """None if nothing that the group has yet to read is about to be deleted."""
    if lag <= 0 or (topic.cleanup_policy is not None and "delete" not in topic.cleanup_policy):
        return None
    if lead < 0:
        return 0.0
    ends = []
    if topic.retention_ms is not None and topic.retention_ms != UNLIMITED and lag_s is not None:
        ends.append(max(topic.retention_ms / 1000 - lag_s, 0.0))
    if topic.retention_bytes is not None and topic.retention_bytes != UNLIMITED and partition.log_bytes and records_per_s:
        kept = topic.retention_bytes / partition.log_bytes * (lead + lag)
        ends.append(max(kept - lag, 0.0) / records_per_s)
    return round(min(ends), 3) if ends else None
