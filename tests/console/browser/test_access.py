"""Who may do what, as a page shows it: login with a token, roles, a read-only console."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla.testing import Broker
from tests.console.browser.conftest import Console, Open
from tests.console.browser.watched import AWAY
from tests.console.browser.world import create_topic, write
from tests.pipelines.conftest import read_topic

VIEWER, ADMIN = "viewer-token-of-the-test", "admin-token-of-the-test"


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as running:
        create_topic(running.bootstrap_servers, "orders")
        write(running.bootstrap_servers, "orders", [{"value": "one"}])
        yield running


@pytest.fixture
def tokens(tmp_path: Path) -> str:
    path = tmp_path / "tokens"
    path.write_text(f"viewer {VIEWER}\nadmin {ADMIN}\n")
    path.chmod(0o600)
    return str(path)


def test_a_token_opens_the_page_that_was_asked_for(broker: Broker, tokens: str, open_page: Open) -> None:
    with Console(broker.bootstrap_servers, "--tokens", tokens) as console:
        page = open_page(console.url, "/topics/orders?tab=configs", allowed=f"status of 40[01]|{AWAY}")
        page.see("Sign in")
        assert not (found := page.accessibility()), "\n".join(found)
        token = page.page.get_by_label("Token")
        token.fill("not-a-token-at-all-but-long")
        page.page.keyboard.press("Enter")
        page.page.get_by_role("alert").wait_for()
        token.fill(VIEWER)
        page.page.keyboard.press("Enter")
        page.see("retention.ms")
        assert page.path == "/topics/orders?tab=configs"
        assert page.button("Delete…").is_disabled(), "a viewer changes nothing"
        assert page.button("Produce…").is_disabled()
        page.button("Sign out").click()
        page.see("Sign in")
        page.page.get_by_label("Token").fill(ADMIN)
        page.page.keyboard.press("Enter")
        page.see("Needs attention")
        page.go("/topics/orders").see("High watermark")
        assert page.button("Delete…").is_enabled()


@pytest.mark.slow
def test_where_to_go_after_the_login_is_a_page_of_the_console(broker: Broker, tokens: str, open_page: Open) -> None:
    with Console(broker.bootstrap_servers, "--tokens", tokens) as console:
        page = open_page(console.url, "/login?to=https://example.org/evil", allowed=f"status of 401|{AWAY}")
        page.page.get_by_label("Token").fill(VIEWER)
        page.page.keyboard.press("Enter")
        page.see("Needs attention")
        assert page.path == "/"


@pytest.mark.slow
def test_a_read_only_console_says_so(broker: Broker, open_page: Open) -> None:
    with Console(broker.bootstrap_servers, "--read-only", "--no-export") as console:
        page = open_page(console.url, "/topics/orders/records", allowed=AWAY).see("one", "Read-only")
        assert page.button("Produce…").is_disabled()
        assert page.button("Produce…").get_attribute("title") == "This console is read-only"
        assert page.page.locator("summary", has_text="Export").count() == 0


@pytest.mark.slow
def test_a_letter_is_edited_without_what_is_hidden(broker: Broker, open_page: Open) -> None:
    """What the reader does not change goes back as it was, also what the page does not show."""
    servers = broker.bootstrap_servers
    create_topic(servers, "orders.dlq")
    of_orders = {"ottla.topic": "orders", "ottla.partition": "0", "ottla.offset": "0", "own": "1"}
    value = '{"card": "4711", "n": 1}'
    write(servers, "orders.dlq", [{"value": value, "headers": list(of_orders.items())}, {"value": "of nowhere"}])
    with Console(servers, "--mask", "value.card", "--mask", "headers.own") as console:
        page = open_page(console.url, "/dead-letters/orders.dlq?letter=0:0", allowed=AWAY).see("masked", "The original")
        page.button("Edit and replay…").click()
        page.see("Fields of this record are hidden here")
        dialog = page.page.get_by_role("dialog")
        dialog.get_by_label("No key (null)").uncheck()
        dialog.get_by_label("Key", exact=True).fill("new")
        dialog.get_by_role("button", name="Replay").click()
        page.see("The letter was replayed to orders")
        page.go("/dead-letters/orders.dlq?letter=0:1").see("does not say where its original is")
        page.button("Edit and replay…").click()
        assert dialog.get_by_role("button", name="Replay").is_disabled(), "there is no topic to go to"
    last = read_topic(servers, "orders")[-1]
    assert (last.key(), last.value(), last.headers()) == (b"new", value.encode(), [("own", b"1")])
