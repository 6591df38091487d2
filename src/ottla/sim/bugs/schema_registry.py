"""Bugs of the schema registry: who may write, and what a write is decided by."""

from __future__ import annotations

import asyncio
from typing import Any

from ottla.protocol.messages.init_producer_id import InitProducerIdRequest
from ottla.registry import errors
from ottla.registry.log_writer import Fenced, LogWriter, WriteFailed
from ottla.registry.service import WRITE_TIMEOUT_S, Registry
from ottla.registry.state import State
from ottla.sim.bugs.registry import Patch, bug


@bug("a leader that was replaced may still write", world="registries", seeds_max=16)
def registry_not_fenced() -> list[Patch]:
    async def init(self: Any) -> tuple[int, int]:
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=0)
        answer = await self._partition.call("init_producer_id", request, (0, 4))
        return answer.producer_id, answer.producer_epoch

    return [(LogWriter, "_init", init)]


@bug("a write is decided before the one before it was read", world="registries", seeds_max=8)
def registry_decides_unread() -> list[Patch]:
    async def append(self: Any, records: Any) -> None:
        try:
            await self._writer.append(records, WRITE_TIMEOUT_S)
        except (WriteFailed, Fenced) as error:
            raise errors.timed_out(str(error)) from None
        self._last_write_s = asyncio.get_running_loop().time()

    return [(Registry, "_append", append)]


@bug("a new leader does not read what the old one wrote", world="registries", seeds_max=12)
def registry_leads_unread() -> list[Patch]:
    original = Registry._append

    async def append(self: Any, records: Any) -> None:
        if not records[0][0].startswith(b'{"keytype":"NOOP"'):
            await original(self, records)

    return [(Registry, "_append", append)]


@bug("a new version is numbered by the versions that are there", world="registries", seeds_max=8)
def registry_leaves_gaps() -> list[Patch]:
    def next_version(self: Any, subject: str) -> int:
        return 2 * len(self._versions.get(subject, {})) + 1

    return [(State, "next_version", next_version)]
