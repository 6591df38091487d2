"""What a cluster promises when one thing happens to it, one story a seed.

In `cluster_world` too much happens at once to say in what time something has to be done, and with which answer. Here nothing else
happens. No acknowledged record is lost in any story, except by an unclean election.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final

from ottla.replication.leader import RACK_AWARE
from ottla.sim.worlds.cluster_harness import ClusterHarness
from ottla.sim.worlds.stories import in_sync, leadership, metadata, readers
from ottla.sim.worlds.story_stage import SETTINGS, Story, StoryStage

BROKERS_MIN: Final = 4
STORIES: Final[dict[str, Story]] = {
    "stop": leadership.broker_stops,
    "too few": in_sync.too_few_in_sync,
    "the last": leadership.last_in_sync_dies,
    "balance": leadership.preferred_leader_returns,
    "settings": metadata.configs_change,
    "directory": leadership.directory_fails,
    "near": readers.closest_replica,
    "end": readers.latest_offset_of_new_leader,
    "deletion": metadata.deletion_is_inherited,
    "life": in_sync.follower_restarts,
    "joiner": in_sync.follower_below_epoch_start,
    "move": metadata.reassignment_is_inherited,
    "absent": metadata.topic_deleted_while_away,
    "histories": in_sync.histories_diverge,
    "answer": in_sync.isr_answer_is_lost,
    "coordinator": readers.coordinator_moves,
}
"""The seed chooses by position: a new story goes to the end."""


def _node_settings(number: int, count: int) -> Mapping[str, str]:
    """Every broker has a rack of its own; the last one fetches slowly."""
    return {"replica.fetch.max.bytes": "300" if number == count else "1048576", "broker.rack": f"rack-{number}"}


class StoryWorld:
    """A run of one seed."""

    def __init__(self, seed: int, *, echo: Callable[[str], None] | None = None) -> None:
        # Of many seeds every fourth comes here: divided by four they go through all stories.
        self.story = list(STORIES)[seed // 4 % len(STORIES)]
        settings = {
            **SETTINGS,
            "auto.leader.rebalance.enable": "true" if self.story == "balance" else "false",
            "replica.selector.class": RACK_AWARE,
            "replica.high.watermark.checkpoint.interval.ms": "5000",
            "offsets.topic.replication.factor": "3",
        }
        self.cluster = cluster = ClusterHarness(
            seed, echo=echo, brokers_min=BROKERS_MIN, dirs=2, settings=settings, node_settings=_node_settings
        )
        # Nobody leaves the ISR by accident: what happens is in the story.
        cluster.network.settings = replace(cluster.network.settings, spike_chance=0.0)
        self.trace = cluster.trace
        self.stage = StoryStage(cluster)

    def run(self) -> None:
        self.cluster.run(self._main)

    async def _main(self) -> None:
        await self.stage.tell([STORIES[self.story]], title=f"the story of {self.story}")
