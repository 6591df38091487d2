"""The pages of the exporter: /metrics, /healthz.

A scrape takes the text of the last round: it waits for no broker. `/healthz` says that the process is alive.
"""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import Callable
from functools import partial
from http import HTTPStatus

from ottla.metrics.exposition import PROMETHEUS
from ottla.runtime.http_server import Page, Request, text_page


class Endpoint:
    def __init__(self, text: Callable[[], bytes]) -> None:
        self._text = text

    async def answer(self, request: Request) -> Page:
        match request.path:
            case "/metrics":
                body = self._text()
                if not request.accepts_gzip:
                    return Page([body], PROMETHEUS)
                # In a thread: the page of a large cluster has megabytes.
                return Page([await asyncio.to_thread(partial(gzip.compress, body, compresslevel=1))], PROMETHEUS, encoding="gzip")
            case "/healthz":
                return text_page("ok")
            case _:
                return text_page("metrics are at /metrics", HTTPStatus.NOT_FOUND)
