"""Keeps the mirrored topics like their sources: existence, partitions, settings. Removes no topic."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from ottla.cli.config import alter_settings
from ottla.cli.connection import REQUEST_TIMEOUT_S, Connection, result_of
from ottla.cli.copying.layout import Layout, create_topic, layouts_of

_OF_A_CLUSTER = frozenset({"min.insync.replicas", "unclean.leader.election.enable"})
"""Settings that follow from the number of brokers of a cluster: each cluster keeps its own."""


def keep_layouts(
    source: Connection, target: Connection, names: Mapping[str, str], replication_factor: int | None = None
) -> list[str]:
    """Create and alter the mirrored topics; `names` has the target of each source. What was done, in words."""
    wanted = layouts_of(source, names)
    metadata = target.metadata()
    found = layouts_of(target, [name for name in names.values() if name in metadata.topics])
    done: list[str] = []
    for topic, name in names.items():
        layout = replace(wanted[topic], config=_own(wanted[topic]))
        if name in found:
            done.extend(_alter(target, name, found[name], layout))
        else:
            replicas = replication_factor or min(layout.replication_factor, len(metadata.brokers))
            create_topic(target, name, replace(layout, replication_factor=replicas))
            done.append(f"topic {name} created like {topic}")
    return done


def _own(layout: Layout) -> dict[str, str]:
    return {key: value for key, value in layout.config.items() if key not in _OF_A_CLUSTER}


def _alter(target: Connection, name: str, found: Layout, wanted: Layout) -> list[str]:
    from confluent_kafka.admin import NewPartitions

    done = []
    if found.partitions < wanted.partitions:
        new = NewPartitions(name, wanted.partitions)
        result_of(target.admin.create_partitions([new], request_timeout=REQUEST_TIMEOUT_S)[name], f"topic {name}")
        done.append(f"topic {name} has {wanted.partitions} partitions now, not {found.partitions}")
    config = _own(found)
    changed = {key: value for key, value in wanted.config.items() if config.get(key) != value}
    removed = sorted(config.keys() - wanted.config.keys())
    if changed or removed:
        alter_settings(target, "topic", name, changed, removed)
        done.append(f"topic {name}: settings altered: {', '.join(sorted({*changed, *removed}))}")
    return done
