"""The pages of the metrics listener: /metrics, /healthz, /readyz and /connections.

Text is made in slices of `SLICE_S` on the event loop: requests are served between two slices, as between those of compaction
(ADR 5). A thread would not help, it holds the interpreter for longer. One page is made at a time.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from http import HTTPStatus
from typing import Any, Final

from ottla.metrics.exposition import OPENMETRICS, PROMETHEUS, exposition, wants_openmetrics
from ottla.metrics.family import Collector, Family
from ottla.runtime.http_server import Page, Request, text_page

SLICE_S: Final = 0.001
_PATHS: Final = ("/metrics", "/healthz", "/readyz", "/connections")


class Endpoint:
    def __init__(
        self,
        monotonic: Callable[[], float],
        not_ready: Callable[[], str | None],
        connections: Callable[[], list[dict[str, Any]]],
    ) -> None:
        """`not_ready`: why the broker does not serve, None if it does."""
        self._monotonic = monotonic
        self._not_ready = not_ready
        self._connections = connections
        self.collectors: list[Collector] = []
        self.last_scrape_s = 0.0
        self._one = asyncio.Lock()

    async def answer(self, request: Request) -> Page:
        match request.path:
            case "/metrics":
                return await self._metrics(openmetrics=wants_openmetrics(request.accept))
            case "/healthz":
                return text_page("ok")
            case "/readyz":
                reason = self._not_ready()
                return text_page("ready") if reason is None else text_page(reason, HTTPStatus.SERVICE_UNAVAILABLE)
            case "/connections":
                return Page([json.dumps(self._connections()).encode()], "application/json")
            case _:
                return text_page(f"no such page; there are {', '.join(_PATHS)}", HTTPStatus.NOT_FOUND)

    async def _metrics(self, *, openmetrics: bool) -> Page:
        async with self._one:
            began = self._monotonic()
            pieces = await self._in_slices(exposition(self._families(), openmetrics=openmetrics))
            self.last_scrape_s = self._monotonic() - began
        return Page(pieces, OPENMETRICS if openmetrics else PROMETHEUS)

    def _families(self) -> Iterator[Family]:
        for collector in self.collectors:
            yield from collector()

    async def _in_slices(self, pieces: Iterator[str]) -> list[bytes]:
        monotonic = self._monotonic
        made: list[bytes] = []
        until = monotonic() + SLICE_S
        for piece in pieces:
            made.append(piece.encode())
            if monotonic() >= until:
                await asyncio.sleep(0)
                until = monotonic() + SLICE_S
        return made
