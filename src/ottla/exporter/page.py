"""Writes docs/exporter.md from the tables of names: `python -m ottla.exporter.page > docs/exporter.md`."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator

from ottla.exporter import names, service
from ottla.metrics.family import Kind, Metric

_HEAD = """# The exporter's metrics

What `ottla exporter` serves at `/metrics`, for any Kafka cluster. This page is generated from the tables in
`src/ottla/exporter/names/` by `python -m ottla.exporter.page`; a test checks that it is current.

```console
$ ottla exporter -b broker-1:9092,broker-2:9092 --listen 127.0.0.1:9308
```

The exporter reads the cluster in rounds, every `--interval` seconds. A scrape gets the last round and waits for no broker. If a
round fails, the round before is served, `ottla_exporter_data_age_seconds` grows, and the log says why; data of ten intervals ago,
and at least five minutes, are dropped. If single brokers do not answer, what only they know is missing.

A group has series for each topic in which it committed an offset. `--no-partitions` leaves out every series with the label
`partition` or `partition_id`. `--names` leaves out other exporters' spellings.

## Lag and lead

**Lag** is the high watermark minus the committed offset. **Lead** is the committed offset minus the log start: at 0 the group is
about to lose records to retention, below 0 it has lost them.

**Lag in seconds** is the age of the record that the group reads next. The exporter keeps samples (time, high watermark) of each
partition for an hour. The record was produced on the line between the last sample at or below its offset and the first sample
above it. For a record older than the samples, the line through the first and the last sample is prolonged; if nothing was
produced in between, its age is that of the first sample, so it is at least that old. The first round after the start therefore
says 0. Of a record that waits, the exporter also asks whether `retention.ms` leaves it less than an hour, and less than ten
minutes; the age agrees with the answers.

**Lead in seconds** is the time until retention deletes the record that the group reads next: `retention.ms` minus the lag in
seconds, or if that is earlier the time until newer records take `retention.bytes`, as fast as they came in that hour. It counts
before a topic deletes records for the first time. Retention deletes whole segments, so the record may be there for longer. There
is no value for a group that has read all, and none without a limit.

**Rebalances**: a group of the consumer protocol counts them (its epoch). For a classic group the exporter compares members and
assignments of consecutive rounds, so several between two rounds count as one.

**Hanging transactions** are open in a partition, and no coordinator will end them there; their producer wrote nothing for 15
minutes. `ottla txn find-hanging` shows them, `ottla txn abort` ends them.
"""

_TITLES = {
    "kafka_exporter": "## Names of kafka_exporter\n",
    "own": "## Ours, with the labels of kafka_exporter\n",
    "kminion": "## Names of kminion\n\nWithout `kminion_kafka_consumer_group_offset_commits_total` and the end-to-end probe.\n",
    "lag_exporter": "## Names of kafka-lag-exporter\n\n`cluster_name` is the cluster id, or what `--cluster-name` says.\n",
}


def render() -> str:
    parts = [_HEAD]
    for name, families in names.FAMILIES.items():
        parts += [_TITLES[name], *_table(families), ""]
    parts += ["## The exporter itself\n", *_table(service.FAMILIES)]
    return "\n".join(parts) + "\n"


def _table(families: Iterable[Metric]) -> Iterator[str]:
    yield "| name | labels | what it is |"
    yield "|---|---|---|"
    for metric in families:
        kind = " (counter)" if metric.kind is Kind.COUNTER else ""
        yield f"| `{metric.name}`{kind} | {', '.join(metric.labels)} | {metric.help} |"


if __name__ == "__main__":
    sys.stdout.write(render())
