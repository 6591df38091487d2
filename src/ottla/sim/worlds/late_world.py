"""Messages that arrive late, one story a seed: why each of the cluster's fences is there.

In each story something is decided and told, the message is held up, given up and sent again; the cluster goes on; then the first
message arrives after all. A fence refuses it. Without the fence it would delete another topic's records, or add a replica to the
ISR that is not in sync.
"""

from __future__ import annotations

from collections.abc import Callable

from ottla.sim.worlds.cluster_harness import ClusterHarness
from ottla.sim.worlds.stories.late_messages import late_deletion, late_fetch, late_isr_change, late_write
from ottla.sim.worlds.story_stage import SETTINGS, StoryStage

STORIES = (late_deletion, late_isr_change, late_write, late_fetch)


class LateWorld:
    """A run of one seed."""

    def __init__(self, seed: int, *, echo: Callable[[str], None] | None = None) -> None:
        self.cluster = ClusterHarness(seed, echo=echo, settings=SETTINGS)
        self.trace = self.cluster.trace
        self.stage = StoryStage(self.cluster)

    def run(self) -> None:
        self.cluster.run(lambda: self.stage.tell(STORIES))
