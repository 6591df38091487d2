"""SR11: a schema that takes too long ends a worker process, and the next one is checked by another."""

from __future__ import annotations

import asyncio

import pytest

from ottla.registry.errors import RegistryError
from ottla.registry.workers import Workers
from ottla.schemas.work import SchemaText


def test_sr11_an_invalid_schema_and_a_process_that_ends() -> None:
    async def play() -> None:
        workers = Workers(1)
        try:
            with pytest.raises(RegistryError, match="Invalid schema") as refused:
                await workers.run("describe", SchemaText("AVRO", '"nothing"'))
            assert refused.value.code == 42201
            process = workers._all[0]._process
            assert process is not None
            process.send_signal(27)  # SIGPROF, as of the timer
            with pytest.raises(RegistryError, match="takes more than 5 s"):
                await workers.run("describe", SchemaText("AVRO", '"string"'))
            described = await workers.run("describe", SchemaText("AVRO", '{"type":"string"}'))
            assert described.canonical == '"string"'
        finally:
            await workers.close()

    asyncio.run(play())
