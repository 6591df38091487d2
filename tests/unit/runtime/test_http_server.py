"""The HTTP server of metrics: what is no request ends its own connection and nothing else."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from ottla.metrics import Counters
from ottla.runtime import http_server
from ottla.runtime.http_server import CONNECTIONS_MAX, HEAD_BYTES_MAX, HttpServer, Page, Request, text_page
from ottla.runtime.loop import run
from ottla.runtime.network import RealNetwork
from tests.kit.wait import until_async

Case = Callable[[HttpServer, int], Awaitable[None]]


async def answer(request: Request) -> Page:
    path = request.path
    if path == "/fails":
        raise RuntimeError("a bug")
    if path == "/waits":
        await asyncio.sleep(3600)
    if path == "/large":
        return Page([b"x" * 100_000] * 50)
    return text_page(f"{path} {request.accept}")


def play(case: Case) -> None:
    async def perform() -> None:
        server = HttpServer(RealNetwork(Counters()), answer)
        port = await server.listen("127.0.0.1", 0)
        try:
            await asyncio.wait_for(case(server, port), 60)
        finally:
            server.close()

    run(perform())


async def ask(port: int, data: bytes) -> bytes:
    """All that comes back until the other end closes."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(data)
        return await reader.read()
    except ConnectionError:
        return b""
    finally:
        writer.close()


def test_get_and_head() -> None:
    async def case(server: HttpServer, port: int) -> None:
        got = await ask(port, b"GET /metrics?x=1 HTTP/1.1\r\nHost: a\r\nAccept: text/plain\r\nACCEPT: */*\r\n\r\n")
        head, _, body = got.partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200 OK\r\n")
        assert body == b"/metrics  text/plain, */*\n"
        assert f"Content-Length: {len(body)}".encode() in head
        assert (
            await ask(port, b"HEAD /metrics HTTP/1.0\r\n\r\n")
            == head.replace(b"Content-Length: 26", b"Content-Length: 10") + b"\r\n\r\n"
        )
        large = await ask(port, b"GET /large HTTP/1.1\r\n\r\n")
        assert large.endswith(b"x")
        assert len(large) > 5_000_000

    play(case)


def test_other_methods_and_failures_are_answered(caplog: pytest.LogCaptureFixture) -> None:
    async def case(server: HttpServer, port: int) -> None:
        refused = await ask(port, b"POST /metrics HTTP/1.1\r\nContent-Length: 5\r\n\r\nhello")
        assert refused.startswith(b"HTTP/1.1 405 ")
        assert b"Allow: GET, HEAD\r\n" in refused
        assert (await ask(port, b"GET /fails HTTP/1.1\r\n\r\n")).startswith(b"HTTP/1.1 500 ")

    play(case)
    assert "The page /fails failed" in caplog.text


@pytest.mark.parametrize(
    "garbage",
    [
        b"\0" * 100 + b"\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",
        b"GET\r\n\r\n",
        b"GET metrics HTTP/1.1\r\n\r\n",
        b"GET / SPDY/9\r\n\r\n",
        b"GET / HTTP/1.1\r\nno colon\r\n\r\n",
        b"GET / HTTP/1.1\r\n folded: x\r\n\r\n",
        b"GET /" + b"x" * HEAD_BYTES_MAX + b" HTTP/1.1\r\n\r\n",
        b"x" * (10 * HEAD_BYTES_MAX),
    ],
    ids=range(9),
)
def test_garbage_closes_its_connection_only(garbage: bytes) -> None:
    async def case(server: HttpServer, port: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET /me")
        assert await ask(port, garbage) == b""
        writer.write(b"trics HTTP/1.1\r\n\r\n")
        assert (await reader.read()).startswith(b"HTTP/1.1 200 ")
        writer.close()
        await until_async(lambda: not server.open)

    play(case)


def test_connections_beyond_the_limit_are_closed() -> None:
    async def case(server: HttpServer, port: int) -> None:
        held = [await asyncio.open_connection("127.0.0.1", port) for _ in range(CONNECTIONS_MAX)]
        await until_async(lambda: len(server.open) == CONNECTIONS_MAX)
        assert await ask(port, b"GET / HTTP/1.1\r\n\r\n") == b""
        held.pop()[1].close()
        await until_async(lambda: len(server.open) == CONNECTIONS_MAX - 1)
        assert (await ask(port, b"GET / HTTP/1.1\r\n\r\n")).startswith(b"HTTP/1.1 200 ")
        for _, writer in held:
            writer.close()

    play(case)


def test_a_connection_that_takes_too_long_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_server, "TIMEOUT_S", 0.05)

    async def case(server: HttpServer, port: int) -> None:
        assert await ask(port, b"GET / HTTP/1.1\r\n") == b""
        assert await ask(port, b"GET /waits HTTP/1.1\r\n\r\n") == b""
        await until_async(lambda: not server.open)

    play(case)


def test_a_client_that_goes_away_ends_the_work_for_it() -> None:
    async def case(server: HttpServer, port: int) -> None:
        before = len(asyncio.all_tasks())
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET /waits HTTP/1.1\r\n\r\n")
        await until_async(lambda: len(asyncio.all_tasks()) > before)
        writer.transport.abort()
        await until_async(lambda: len(asyncio.all_tasks()) == before)

    play(case)
