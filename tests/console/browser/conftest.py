"""One broker with a world on it, one console, one Chromium for the tests of a file; a fresh page for each test.

A page fails its test if it asks another host, writes an error to the browser's console, throws, or runs what a record holds.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import httpx
import pytest
from playwright.sync_api import Browser, BrowserContext, sync_playwright

from ottla.testing import Broker
from tests.console.browser.watched import Watched, watch
from tests.console.browser.world import world
from tests.kit.ottla_command import Ottla
from tests.kit.peers import Service, chromium

FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
]
"""Chromium in a container, and silent: it asks nobody but the page."""


class Console(Service):
    """`ottla console` of this checkout."""

    name = "console"
    ready_timeout_s = 60.0

    def __init__(self, bootstrap_servers: str, *options: str) -> None:
        super().__init__()
        self.bootstrap_servers, self.options = bootstrap_servers, options

    def command(self) -> list[str]:
        return Ottla.command("console", "-b", self.bootstrap_servers, "--listen", "127.0.0.1:0", *self.options)

    @property
    def url(self) -> str:
        return str(re.findall(r" at (http://\S+)", self.output)[-1])

    def is_ready(self) -> bool:
        if " at http://" not in self.output:
            return False
        try:  # the first answer of the cluster: pages have something to show
            return httpx.get(f"{self.url}/api/overview", timeout=30).status_code in (200, 401)
        except httpx.TransportError:
            return False  # the address is of an earlier start


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    """A broker of Ottla with a world on it."""
    with Broker({"group.initial.rebalance.delay.ms": 0}) as broker, world(broker.bootstrap_servers):
        yield broker.bootstrap_servers


@pytest.fixture(scope="module")
def console(servers: str) -> Iterator[Console]:
    with Console(servers) as running:
        yield running


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    # Of the module: while Playwright runs, no other test of this process could run an event loop.
    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=chromium(), args=FLAGS)
        yield opened
        opened.close()


Open = Callable[..., Watched]


@pytest.fixture
def open_page(browser: Browser) -> Iterator[Open]:
    """Opens a page of a console, in a context of its own; all that opened are judged at the end of the test."""
    contexts: list[BrowserContext] = []
    pages: list[Watched] = []

    def opening(url: str, path: str = "/", *, width: int = 1280, scheme: str = "light", allowed: str | None = None) -> Watched:
        context = browser.new_context(
            viewport={"width": width, "height": 800}, color_scheme="dark" if scheme == "dark" else "light", accept_downloads=True
        )
        contexts.append(context)
        context.grant_permissions(["clipboard-read", "clipboard-write"])
        page = watch(context.new_page(), url, allowed)
        pages.append(page)
        page.go(path)
        return page

    yield opening
    problems = [problem for page in pages for problem in page.problems()]
    for context in contexts:
        context.close()
    assert problems == []


@pytest.fixture
def page(console: Console, open_page: Open) -> Watched:
    return open_page(console.url)
