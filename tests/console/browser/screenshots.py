"""Take the pictures of the documentation: `python -m tests.console.browser.screenshots [FOLDER] [PAGE…]`.

Starts a broker with a world on it and traffic, a console and a browser; takes each page of `PAGES` that has a picture.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import sync_playwright

from ottla.testing import Broker
from tests.console.browser.conftest import FLAGS, Console
from tests.console.browser.pages import PAGES, fill, find_places
from tests.console.browser.watched import watch
from tests.console.browser.world import order, world, write
from tests.kit.peers import chromium

FOLDER = Path(__file__).parents[3] / "docs/images/console"
SIZE = {"width": 1280, "height": 800}
DARK = {"record", "pipeline"}
SETTLE_MS = 20_000
"""Charts need some rounds of the console's readings."""


@contextmanager
def traffic(servers: str) -> Iterator[None]:
    """Orders that keep coming."""
    over = threading.Event()

    def run() -> None:
        number = 10_000
        while not over.wait(0.2):
            write(servers, "orders", [order(number + each) for each in range(9)])
            number += 9

    thread = threading.Thread(target=run, name="traffic", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def main(words: list[str]) -> None:
    folder = Path(words[0]) if words else FOLDER
    wanted = set(words[1:])
    folder.mkdir(parents=True, exist_ok=True)
    with Broker({"group.initial.rebalance.delay.ms": 0}) as broker, world(broker.bootstrap_servers, hostile=False):
        servers = broker.bootstrap_servers
        with traffic(servers), Console(servers) as console, sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=chromium(), args=FLAGS)
            places = find_places(console.url)
            first = True
            for each in PAGES:
                if each.picture is None or (wanted and each.picture not in wanted):
                    continue
                scheme = "dark" if each.picture in DARK else "light"
                page = watch(browser.new_page(viewport=SIZE, color_scheme=scheme), console.url)  # type: ignore[arg-type]
                page.go(fill(each.path, places))
                page.page.wait_for_timeout(SETTLE_MS if first else 2_500)
                first = False
                picture = folder / f"{each.picture}.png"
                page.page.screenshot(path=picture)
                print(picture)
                page.page.close()
            browser.close()


if __name__ == "__main__":
    main(sys.argv[1:])
