"""The log cleaner: compacts logs in the background.

Owns when a pass starts. `LogsToClean` chooses the log, `Compactor` runs the pass; the checkpoint is written after each.

At most `log.cleaner.threads` passes run at once. A log that is truncated, deleted or no longer compacted ends only its own pass.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging

from ottla.broker.metadata.local_metadata import LocalMetadata
from ottla.broker.replicas.checkpoints import Checkpoints
from ottla.broker.replicas.compactor import Compactor
from ottla.broker.replicas.logs_to_clean import LogsToClean
from ottla.broker.replicas.partition import Partition
from ottla.storage.compaction_plan import LogToClean
from ottla.storage.log import Log
from ottla.storage.names import CLEANED_OFFSETS

logger = logging.getLogger(__name__)


class Cleaner:
    def __init__(self, logs: LogsToClean, compactor: Compactor, metadata: LocalMetadata, checkpoints: Checkpoints) -> None:
        self._logs = logs
        self._compactor = compactor
        self._metadata = metadata
        self._checkpoints = checkpoints
        self._choosing: asyncio.Task[None] | None = None
        self._passes: dict[Partition, asyncio.Task[None]] = {}
        self._changed = asyncio.Event()

    def start(self) -> None:
        if self._metadata.settings.bool("log.cleaner.enable"):
            self._choosing = asyncio.get_running_loop().create_task(self._choose())

    async def stop(self) -> None:
        """Waits until the passes have ended: nobody works on a directory that is being closed."""
        self._compactor.stop()
        if self._choosing is not None:
            self._choosing.cancel()
            await asyncio.gather(self._choosing, return_exceptions=True)
        await asyncio.gather(*self._passes.values(), return_exceptions=True)

    async def _choose(self) -> None:
        """Start passes while there are logs that need one."""
        while True:
            settings = self._metadata.settings
            if len(self._passes) >= settings.int("log.cleaner.threads"):
                if self._passes:
                    await asyncio.wait(self._passes.values(), return_when=asyncio.FIRST_COMPLETED)
                else:
                    await self._pause()
                continue
            try:
                found = await self._logs.next(self._passes)
            except Exception:
                logger.exception("Log cleaner could not select a log, retrying")
                found = None
            if found is None:
                await self._pause()
                continue
            partition, dirt = found
            task = asyncio.get_running_loop().create_task(self._clean(partition, dirt))
            self._passes[partition] = task
            task.add_done_callback(lambda _, partition=partition: self._passes.pop(partition, None))  # type: ignore[misc]

    @property
    def last_pass_s(self) -> float:
        """How long the pass took that ended last."""
        return self._compactor.last_pass_s

    @property
    def overdue_s(self) -> int:
        """How much longer than `max.compaction.lag.ms` the oldest records wait."""
        return self._logs.overdue_ms // 1000

    def uncleanable(self) -> list[Log]:
        """The logs that are skipped until the broker restarts."""
        return self._logs.uncleanable()

    def settings_changed(self) -> None:
        """End the pause, whose length the old settings gave."""
        self._changed.set()

    async def _pause(self) -> None:
        self._changed.clear()
        # 0 means as often as possible, which must still leave time for requests.
        pause_ms = max(self._metadata.settings.int("log.cleaner.backoff.ms"), 10)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._changed.wait(), pause_ms / 1000)

    async def _clean(self, partition: Partition, dirt: LogToClean) -> None:
        if dirt.log.closed:
            return
        try:
            finished = await self._compactor.run(partition, dirt)
        except Exception as error:
            self._logs.set_aside(partition, error)
            return
        if finished:
            await self._checkpoints.write(partition.data_dir, CLEANED_OFFSETS)
