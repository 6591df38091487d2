"""The difference between the clock here and those of brokers.

No request tells a broker's time. What brokers write does: the offsets topic has their times. Its newest record tells a clock
that is ahead. With `--probe` each coordinator writes one: an offset of a group of the doctor's own, which is deleted again.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

from ottla.cli.connection import REQUEST_TIMEOUT_S, result_of
from ottla.cli.doctor.case import Case
from ottla.cli.doctor.finding import Finding, Severity
from ottla.cli.positions import TopicIndex

_TOPIC = "__consumer_offsets"
_GROUP = "ottla-doctor"
_SMALL_MS = 1_000
_LARGE_MS = 30_000
_MEND = "synchronise the clocks of both machines: systemctl enable --now chrony"


def clocks(case: Case) -> Iterator[Finding]:
    led = [key for key, each in case.view.partitions.items() if key[0] == _TOPIC and not each.is_offline]
    if not led:
        yield Finding("clock", Severity.INFO, "brokers", "not measured: no broker has written times that can be read")
        return
    if case.probe:
        yield from _probed(case, led)
        return
    newest = _newest(case, led)
    ahead = {key: when - case.now_ms for key, when in newest.items() if when - int(time.time() * 1000) > _SMALL_MS}
    for broker in sorted({case.view.partitions[key].leader for key in ahead}):
        ms = max(ahead[key] for key in ahead if case.view.partitions[key].leader == broker)
        yield _off(broker, ms)
    if not ahead:
        yield Finding(
            "clock", Severity.INFO, "brokers", "no clock is ahead of the one here; --probe measures whether one is behind"
        )


def _probed(case: Case, led: list[TopicIndex]) -> Iterator[Finding]:
    """Have each coordinator write the time. Its clock was between the two looks at ours, if it is right."""
    from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition

    groups = _groups(len(led))
    admin = case.connection.admin
    worst: dict[int, int] = {}
    for (topic, index), name in groups.items():
        if (topic, index) not in case.view.partitions or case.view.partitions[topic, index].leader in worst:
            continue
        before_ms = int(time.time() * 1000)
        request = ConsumerGroupTopicPartitions(name, [TopicPartition(_TOPIC, 0, 0)])
        result_of(admin.alter_consumer_group_offsets([request], request_timeout=REQUEST_TIMEOUT_S)[name], f"group {name}")
        after_ms = int(time.time() * 1000)
        written_ms = _newest(case, [(topic, index)]).get((topic, index), before_ms)
        result_of(admin.delete_consumer_groups([name], request_timeout=REQUEST_TIMEOUT_S)[name], f"group {name}")
        off = written_ms - after_ms if written_ms > after_ms else min(0, written_ms - before_ms)
        worst[case.view.partitions[topic, index].leader] = off
    for broker, off in sorted(worst.items()):
        if abs(off) > _SMALL_MS:
            yield _off(broker, off)


def _groups(count: int) -> dict[TopicIndex, str]:
    """A group name for each partition of the offsets topic: its hash chooses the partition."""
    from ottla.coordinator.shard import positive_hash

    found: dict[TopicIndex, str] = {}
    for number in range(count * 40):
        name = f"{_GROUP}-{number}"
        found.setdefault((_TOPIC, positive_hash(name) % count), name)
    return found


def _newest(case: Case, keys: list[TopicIndex]) -> dict[TopicIndex, int]:
    """The largest timestamp in each partition that has one."""
    from confluent_kafka import TopicPartition
    from confluent_kafka.admin import OffsetSpec

    asked = {TopicPartition(*key): OffsetSpec.max_timestamp() for key in keys}  # type: ignore[no-untyped-call]
    futures = case.connection.admin.list_offsets(asked, request_timeout=REQUEST_TIMEOUT_S)
    found = {
        (each.topic, each.partition): result_of(future, f"{each.topic}-{each.partition}") for each, future in futures.items()
    }
    return {key: each.timestamp for key, each in found.items() if each.timestamp >= 0}


def _off(broker: int, ms: int) -> Finding:
    severity = Severity.ERROR if abs(ms) > _LARGE_MS else Severity.WARNING
    what = f"its clock is {abs(ms) / 1000:.1f} s {'ahead of' if ms > 0 else 'behind'} the one here"
    return Finding("clock", severity, f"broker {broker}", what, _MEND)
