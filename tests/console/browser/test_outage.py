"""Pages that are open while the broker or the console goes away and comes back."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ottla.testing import Broker
from tests.console.browser.conftest import Console, Open
from tests.console.browser.watched import AWAY
from tests.console.browser.world import create_topic, write
from tests.kit.wait import until


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker() as running:
        create_topic(running.bootstrap_servers, "orders")
        yield running


def test_a_broker_goes_away_and_comes_back(broker: Broker, open_page: Open) -> None:
    """A banner shows, the page keeps what it knew, and goes on by itself: nobody reloads it."""
    with Console(broker.bootstrap_servers) as console:
        topic = open_page(console.url, "/topics/orders", allowed=AWAY).see("High watermark")
        topics = open_page(console.url, "/topics", allowed=AWAY).see("1 topics")
        broker.stop()
        for page in (topic, topics):
            page.page.locator(".banner").wait_for()
            page.see("orders")
        broker.start()
        for page in (topic, topics):
            page.page.locator(".banner").wait_for(state="detached")
        write(broker.bootstrap_servers, "orders", [{"value": f"after {number}"} for number in range(7)])
        topic.see("7")
        topics.see("7")


@pytest.mark.slow
def test_a_live_view_goes_on_when_the_broker_is_back(broker: Broker, open_page: Open) -> None:
    with Console(broker.bootstrap_servers) as console:
        live = open_page(console.url, "/topics/orders/records?live=1", allowed=AWAY).see("Waiting for new records")
        broker.stop()
        broker.start()
        write(broker.bootstrap_servers, "orders", [{"value": f"after {number}"} for number in range(7)])
        # The console's consumer may take a while to come back.
        until(lambda: "after 6" in live.page.inner_text("body"), "the record is shown", 120)


@pytest.mark.slow
def test_the_console_goes_away_and_comes_back(broker: Broker, open_page: Open) -> None:
    with Console(broker.bootstrap_servers) as console:
        url = console.url
        page = open_page(url, "/topics", allowed=AWAY).see("1 topics")
        console.stop()
        page.see("The console's server does not answer", "orders")
        console.options = (*console.options, "--listen", url.removeprefix("http://"))
        console.start()
        page.page.locator(".banner").wait_for(state="detached")
        create_topic(broker.bootstrap_servers, "payments")
        page.see("payments")
