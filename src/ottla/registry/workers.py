"""Worker processes for schemas, each with a time limit (SR11): a hostile schema ends a process, never the registry.

Processes are started when they are needed and kept. One that takes too long is killed; the next request starts another.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import pickle
import signal
import sys
from pathlib import Path
from typing import Any, Final

from ottla.registry import errors
from ottla.registry.worker import CPU_LIMIT_S, DONE, INVALID

WORKERS: Final = 2
TIME_LIMIT_S: Final = 60.0
"""For a process that does not answer at all. A schema has `CPU_LIMIT_S`."""
_EXIT_S: Final = 5.0
_FRAME_BYTES_MAX: Final = 256 << 20

logger = logging.getLogger("ottla.registry")


class Workers:
    def __init__(self, count: int = WORKERS, time_limit_s: float = TIME_LIMIT_S) -> None:
        self._time_limit_s = time_limit_s
        self._all = [_Worker() for _ in range(count)]
        self._free: asyncio.LifoQueue[_Worker] = asyncio.LifoQueue()
        for worker in self._all:
            self._free.put_nowait(worker)

    async def run(self, name: str, *arguments: object) -> Any:
        """The result of a function of `schema_work`. RegistryError if a schema is invalid, too large or takes too long."""
        worker = await self._free.get()
        try:
            return await self._ask(worker, name, arguments)
        finally:
            self._free.put_nowait(worker)

    async def _ask(self, worker: _Worker, name: str, arguments: tuple[object, ...]) -> Any:
        try:
            async with asyncio.timeout(self._time_limit_s):
                answer = await worker.ask(name, arguments)
        except TimeoutError:
            await worker.kill()
            raise errors.timed_out("the schema was not checked in time; try again") from None
        except (OSError, EOFError):
            if await worker.ended() == -signal.SIGPROF:
                raise errors.invalid_schema(f"Invalid schema: it takes more than {CPU_LIMIT_S:g} s to check") from None
            raise errors.invalid_schema("the schema ended the process that checks it") from None
        except asyncio.CancelledError:
            await worker.kill()  # its answer would be taken for that of the next request
            raise
        if answer[0] == DONE:
            return answer[1]
        if answer[0] == INVALID:
            # Clients look for these words.
            raise (errors.too_large if answer[2] else errors.invalid_schema)(f"Invalid schema: {answer[1]}")
        logger.error("Checking a schema failed; please report this:\n%s", answer[1])
        raise errors.invalid_schema("the schema cannot be checked: see the registry's log")

    async def close(self) -> None:
        for worker in self._all:
            await worker.kill()


class _Worker:
    def __init__(self) -> None:
        self._process: asyncio.subprocess.Process | None = None

    async def ask(self, name: str, arguments: tuple[object, ...]) -> tuple[Any, ...]:
        if self._process is None:
            self._process = await _start()
        reading, writing = self._process.stdout, self._process.stdin
        assert reading is not None
        assert writing is not None
        data = pickle.dumps((name, arguments))
        writing.write(len(data).to_bytes(4, "big") + data)
        await writing.drain()
        size = int.from_bytes(await reading.readexactly(4), "big")
        if size > _FRAME_BYTES_MAX:
            raise EOFError
        answer: tuple[Any, ...] = pickle.loads(await reading.readexactly(size))
        return answer

    async def ended(self) -> int | None:
        """How a process ended that closed its output, negative for a signal.

        It is not killed at once: `kill` of asyncio looks for the exit status itself, and then nobody else can learn it.
        """
        process = self._process
        if process is not None:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_EXIT_S):
                    await process.wait()
        await self.kill()
        return process.returncode if process is not None else None

    async def kill(self) -> None:
        """End the process, if it has not ended."""
        process, self._process = self._process, None
        if process is not None and process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()


_SOURCES: Final = str(Path(__file__).resolve().parents[2])


async def _start() -> asyncio.subprocess.Process:
    paths = os.pathsep.join(filter(None, [_SOURCES, os.environ.get("PYTHONPATH")]))
    return await asyncio.create_subprocess_exec(
        sys.executable,
        "-P",
        "-m",
        "ottla.registry.worker",
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": paths},
        start_new_session=True,
    )
