"""The console in a real Chromium: every page, what people do on it, and what records hold never runs."""

from __future__ import annotations

import json
import re
from typing import Any

import httpx
import pytest

from tests.console.browser.conftest import Console, Open
from tests.console.browser.pages import PAGES, ConsolePage, fill, find_places
from tests.console.browser.watched import Watched
from tests.console.browser.world import HOSTILE, LAGGING, RECORDS, create_topic, write
from tests.kit.wait import until


@pytest.fixture(scope="module")
def places(console: Console) -> dict[str, str]:
    """What paths name that no two worlds share: a broker, the offset of a record of ada, a dead letter."""
    return find_places(console.url)


@pytest.mark.parametrize(
    "each", [pytest.param(each, marks=() if each.picture else pytest.mark.slow, id=each.path) for each in PAGES]
)
def test_a_page_opens_with_real_data(console: Console, open_page: Open, places: dict[str, str], each: ConsolePage) -> None:
    """In light and dark, wide and at 400 px; axe finds nothing serious in either, and nothing sticks out of the window."""
    page = open_page(console.url, fill(each.path, places), allowed=each.allowed)
    page.see(*(fill(text, places) for text in each.shows))
    assert not (found := page.accessibility()), "\n".join(found)
    page.page.emulate_media(color_scheme="dark")
    assert not (found := page.accessibility()), "dark: " + "\n".join(found)
    page.page.set_viewport_size({"width": 400, "height": 800})
    page.see(*(fill(text, places) for text in each.shows[:1]))
    assert page.overflow_px() <= 0


def test_what_a_record_holds_is_text(console: Console, open_page: Open) -> None:
    """Each record of the hostile topic, each view of it."""
    found = httpx.get(f"{console.url}/api/topics/hostile").json()["records"]
    assert found == 5
    page = open_page(console.url, "/topics/hostile/records?order=oldest&column=" + json.dumps("value"))
    page.see(f"{found} records")
    for offset in range(found):
        page.page.locator("tbody tr.row-line").nth(offset).locator("td").nth(1).click()
        page.see(f"hostile-0 @ {offset}")
        for view in ("Key", "Headers", "Details", "Copy as", "Value"):
            page.button(view).click()
        for how in ("Text", "Bytes"):
            if page.button(how).count():
                page.button(how).click()
    assert page.page.locator("#app img, #app script").count() == 0
    assert page.page.evaluate("({}).polluted") is None


def test_a_link_reproduces_the_page(page: Watched, open_page: Open, console: Console) -> None:
    page.go("/topics").see("orders-clean")
    page.button("Records").click()
    page.page.wait_for_url("**/topics?sort=-records")
    page.page.get_by_role("searchbox", name="Search topics").fill("orders")
    page.see("3 of 7 topics")
    rows = page.page.locator("tbody tr.row-line td:first-child").all_inner_texts()
    assert rows[0] == "orders"
    again = open_page(console.url, page.path).see("3 of 7 topics")
    assert again.page.locator("tbody tr.row-line td:first-child").all_inner_texts() == rows
    page.row("orders-clean").locator("td").nth(2).click()
    page.page.wait_for_url("**/topics/orders-clean")
    page.page.go_back()
    page.page.wait_for_url("**/topics?sort=-records&search=orders")


def test_the_keyboard_goes_everywhere(page: Watched) -> None:
    press = page.page.keyboard.press
    page.see("Needs attention")
    press("Control+k")
    page.page.locator("dialog[open]").wait_for()
    page.page.keyboard.type("orders-cl")
    page.see("orders-clean")
    until(lambda: "orders-clean" in page.page.locator("[role=option][aria-selected=true]").inner_text(), "the topic is first")
    press("Enter")
    page.page.wait_for_url("**/topics/orders-clean")
    page.see("High watermark")
    page.page.locator("dialog[open]").wait_for(state="detached")
    press("/")
    page.page.locator("dialog[open]").wait_for()
    page.page.keyboard.type("groups")
    press("Enter")
    page.page.wait_for_url("**/groups")
    page.see(LAGGING)
    press("Control+k")
    page.page.locator("dialog[open]").wait_for()
    press("Escape")
    page.page.locator("dialog[open]").wait_for(state="detached")
    page.page.get_by_role("grid", name="Groups").focus()
    press("End")
    press("ArrowUp")
    press("Home")
    press("j")
    second = page.page.locator("tbody tr.row-line").nth(1).locator("a").inner_text()
    grid = page.page.get_by_role("grid", name="Groups")
    until(lambda: (grid.get_attribute("aria-activedescendant") or "").endswith("-1"), "the second row is chosen")
    press("Enter")
    until(lambda: page.path.startswith("/groups/"), "the group is shown")
    page.see(second, "Lag in time")


def test_records_are_searched(page: Watched) -> None:
    page.go("/topics/orders/records").see("100 records", "there may be more")
    page.button("Show more").click()
    page.see("200 records")
    page.page.get_by_label("Text in key, value or headers").fill("t-00042")
    page.button("Search").click()
    page.see("1 record", "All of it was scanned.", "customer-2")
    page.page.get_by_label("Filter, as value.amount > 100").fill("value.amout >")
    page.button("Search").click()
    page.page.locator("[role=alert]").wait_for()
    page.page.get_by_label("Text in key, value or headers").fill("")
    page.page.get_by_label("Filter, as value.amount > 100").fill('value.customer.name == "ada" and value.express')
    page.button("Search").click()
    page.see(f"{RECORDS // 20} records", "All of it was scanned.")
    assert "where=value.customer.name" in page.path


@pytest.mark.slow
def test_a_record_gives_columns_filters_and_copies(page: Watched) -> None:
    page.go("/topics/orders/records?order=oldest&limit=50").see("50 records")
    page.page.locator("tbody tr.row-line").first.locator("td").nth(1).click()
    page.see("Prague")
    leaf = page.page.locator(".tree-leaf", has_text="amount").first
    leaf.hover()
    leaf.get_by_text("column").click()
    page.page.get_by_role("columnheader", name="value.amount").wait_for()
    leaf.hover()
    leaf.get_by_text("filter").click()
    page.see("All of it was scanned.")
    assert "where=value.amount" in page.path
    identity = page.page.locator(".tree-leaf", has_text="id").first.inner_text() if page.page.locator(".tree").count() else ""
    assert identity == "" or re.search(r"90071992547409\d\d", identity), "a number beyond 2^53 keeps its digits"
    page.button("Copy as…").click()
    page.button("PySpark").click()
    page.see('format("ottla")')


def test_live_records_arrive_and_pause(page: Watched, servers: str) -> None:
    create_topic(servers, "arriving")
    page.go("/topics/arriving/records?live=1").see("Waiting for new records")
    until(lambda: page.streams == 1, "the stream is open")
    page.page.wait_for_timeout(500)  # the stream begins at the end: nothing tells the page when
    write(servers, "arriving", [{"value": "first"}])
    page.see("first")
    page.button("Pause").click()
    write(servers, "arriving", [{"value": "second"}])
    page.page.get_by_role("button", name="Go on (1 new)").click()
    page.see("second")
    page.hide(True)
    until(lambda: page.streams == 0, "a hidden page has no stream")
    write(servers, "arriving", [{"value": "while nobody looked"}])
    page.hide(False)
    page.see("while nobody looked", "3 records")


@pytest.mark.slow
def test_a_record_is_produced_and_produced_again(page: Watched, servers: str) -> None:
    create_topic(servers, "produced")
    page.go("/topics/produced").see("High watermark")
    page.button("Produce…").click()
    dialog = page.page.get_by_role("dialog")
    dialog.get_by_label("No key (null)").uncheck()
    dialog.get_by_label("Key", exact=True).fill("ada")
    dialog.get_by_label("Value", exact=True).fill('{"n": 1}')
    dialog.get_by_role("button", name="Add a header").click()
    dialog.get_by_label("Header name").fill("trace")
    dialog.get_by_label("Header value").fill(HOSTILE)
    assert "ottla produce produced" in dialog.get_by_label("Command").inner_text()
    dialog.get_by_role("button", name="Produce").click()
    page.see("Written to produced-0 at offset 0")
    page.go("/topics/produced/records?record=0:0").see("produced-0 @ 0")
    page.button("Produce again…").click()
    page.page.get_by_role("dialog").get_by_role("button", name="Produce").click()
    page.see("at offset 1")
    page.go("/topics/produced/records?record=0:1").see("produced-0 @ 1")
    page.button("Headers").click()
    page.see(HOSTILE)


@pytest.mark.slow
def test_a_topic_is_created_changed_and_deleted(console: Console, open_page: Open) -> None:
    page = open_page(console.url, "/topics", allowed="status of 400")
    page.button("Create a topic…").click()
    dialog = page.page.get_by_role("dialog")
    dialog.get_by_label("Name").fill("made/here")
    dialog.get_by_role("button", name="Create").click()
    dialog.get_by_role("alert").wait_for()
    dialog.get_by_label("Name").fill("made-here")
    dialog.get_by_label("retention.ms").fill("3600000")
    dialog.get_by_role("button", name="Create").click()
    page.page.wait_for_url("**/topics/made-here")
    page.see("Topic made-here was created")
    page.go("/topics/made-here?tab=configs&changed=1").see("1 h")
    page.button("Change retention.ms").click()
    dialog.get_by_label("Value (long)").fill("7200000")
    assert "ottla config set topic made-here retention.ms=7200000" in dialog.get_by_label("Command").inner_text()
    dialog.get_by_role("button", name="Save").click()
    page.see("2 h")
    page.button("Delete…").click()
    confirm = dialog.get_by_role("button", name="Delete the topic")
    assert confirm.is_disabled()
    dialog.get_by_label("Type made-here to confirm").fill("made-here")
    confirm.click()
    page.page.wait_for_url("**/topics")
    page.go("/audit").see("delete_topic", "failed")


@pytest.mark.slow
def test_offsets_are_reset_after_a_preview(page: Watched) -> None:
    page.go(f"/groups/{LAGGING}").see("540")
    page.button("Reset offsets…").click()
    dialog = page.page.get_by_role("dialog")
    dialog.get_by_label("To", exact=True).select_option("shift")
    dialog.get_by_label("Records").fill("-5")
    dialog.get_by_role("button", name="Preview").click()
    dialog.get_by_role("row", name="orders 0 20 15").wait_for()
    assert (
        f"ottla group reset-offsets {LAGGING} --all-topics --shift-by -5 --execute" in dialog.get_by_label("Command").inner_text()
    )
    dialog.get_by_role("button", name="Commit these offsets").click()
    page.see(f"3 offsets of {LAGGING} committed", "555")


def test_a_dead_letter_is_edited_and_the_rest_replayed(page: Watched, places: dict[str, str], console: Console) -> None:
    page.go(f"/dead-letters/orders.dlq?letter={places['letter']}").see("The original")
    page.button("Edit and replay…").click()
    dialog = page.page.get_by_role("dialog")
    dialog.get_by_label("Value", exact=True).fill('{"id": 1, "amount": 5, "mended": true}')
    dialog.get_by_role("button", name="Replay").click()
    page.see("The letter was replayed to orders")
    page.go("/dead-letters/orders.dlq")
    page.button("Replay all…").click()
    dialog.get_by_role("button", name="Show what would be replayed").click()
    dialog.get_by_role("button", name="Replay 8 letters").click()
    page.see("8 letters replayed", "done")
    page.go("/dead-letters/orders.dlq").see("Nothing waits here")
    assert httpx.get(f"{console.url}/api/topics/orders").json()["partitions"], "the topic is there"


def test_ten_thousand_rows_are_a_window(page: Watched, servers: str) -> None:
    create_topic(servers, "many")
    write(servers, "many", [{"value": f"value {number}"} for number in range(10_000)])
    page.go("/topics/many/records?order=oldest&limit=10000").see("10,000 records", "value 0")
    rows = page.page.locator("tbody tr.row-line")
    assert rows.count() < 110
    box = page.page.locator(".table-box").first
    box.evaluate("box => { box.scrollTop = box.scrollHeight }")
    page.see("value 9999")
    assert rows.count() < 110
    assert page.page.get_by_role("grid").get_attribute("aria-rowcount") == "10001"
    page.page.get_by_role("grid").focus()
    page.page.keyboard.press("Home")
    page.see("value 0")


@pytest.mark.slow
def test_the_colours_are_the_readers_choice(page: Watched) -> None:
    def background() -> Any:
        return page.page.evaluate("getComputedStyle(document.body).backgroundColor")

    light = background()
    page.page.get_by_role("button", name=re.compile("Colours: as the system has it")).click()
    page.page.get_by_role("button", name=re.compile("Colours: light")).click()
    assert background() != light
    page.go("/topics").see("orders")
    assert background() != light
    page.page.get_by_role("button", name=re.compile("Colours: dark")).click()
    assert background() == light
