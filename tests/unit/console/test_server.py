"""Connections that send no whole request are closed."""

from __future__ import annotations

import asyncio

import pytest
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route
from uvicorn.server import ServerState

from ottla.console import server

LIMIT_S = 0.05


async def _hello(request: Request) -> PlainTextResponse:
    await asyncio.sleep(4 * LIMIT_S)
    return PlainTextResponse("hello")


async def _sent(data: bytes) -> bytes:
    """All that comes back until the connection is closed."""
    config = uvicorn.Config(
        Starlette(routes=[Route("/", _hello, methods=["GET", "POST"])]), lifespan="off", timeout_keep_alive=60
    )
    config.load()
    listening = await asyncio.get_running_loop().create_server(
        lambda: server._Connection(config, ServerState(), {}), "127.0.0.1", 0
    )
    async with listening:
        reader, writer = await asyncio.open_connection(*listening.sockets[0].getsockname())
        writer.write(data)
        try:
            return await reader.read()
        except ConnectionResetError:
            return b""
        finally:
            writer.close()


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"GET / HT",
        b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\n{",
        b"GET / HTTP/1.1\r\nHost: a\r\n\r\nGET / HT",
    ],
)
def test_a_request_that_does_not_come_whole(data: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "REQUEST_S", LIMIT_S)
    asyncio.run(asyncio.wait_for(_sent(data), 30))


def test_an_answer_takes_as_long_as_it_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "REQUEST_S", LIMIT_S)
    answer = asyncio.run(asyncio.wait_for(_sent(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"), 30))
    assert answer.endswith(b"hello")
