"""A page that is watched: what it asks, what it complains of, and whether something ran that should be text."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from playwright.sync_api import ConsoleMessage, Locator, Page, Request, TimeoutError

AXE = Path(__file__).parent / "vendor/axe.min.js"
TIMEOUT_MS = 30_000

AWAY = r"ERR_CONNECTION_REFUSED|ERR_INCOMPLETE_CHUNKED|ERR_EMPTY_RESPONSE|ERR_CONNECTION_RESET|status of 50[0-9]"
"""What the browser itself says of a server that is away, or that says that no broker answers."""

# Counts event streams, and notes what the content security policy refused.
_INIT = """
window.__streams = 0;
window.__refused = [];
addEventListener("securitypolicyviolation", (event) => window.__refused.push(`${event.violatedDirective} ${event.blockedURI}`));
const Real = window.EventSource;
window.EventSource = class extends Real {
  constructor(...words) { super(...words); window.__streams += 1; this.counted = true; }
  close() { if (this.counted) { this.counted = false; window.__streams -= 1; } super.close(); }
};
"""


_READ = r"document.body.innerText.replace(/\s+/g, ' ')"


@cache
def _axe() -> str:
    return AXE.read_text()


class Watched:
    """A page of the console at `url`. `allowed` is a pattern of console messages that the test provokes."""

    def __init__(self, page: Page, url: str, allowed: str | None) -> None:
        self.page, self.url, self.allowed = page, url, allowed
        self._problems: list[str] = []

    # What tests do with it

    def go(self, path: str) -> Watched:
        self.page.goto(self.url + path)
        return self

    def text(self, text: str | re.Pattern[str], *, exact: bool = False) -> Locator:
        return self.page.get_by_text(text, exact=exact)

    def button(self, name: str) -> Locator:
        return self.page.get_by_role("button", name=name, exact=True)

    def see(self, *texts: str) -> Watched:
        """Wait until each text is on the page, in what a reader sees."""
        for text in texts:
            try:
                self.page.wait_for_function(f"text => {_READ}.includes(text)", arg=text, timeout=TIMEOUT_MS)
            except TimeoutError:
                raise AssertionError(f"{self.path} does not show {text!r}, but: {self.page.evaluate(_READ)[:3000]}") from None
        return self

    def row(self, text: str) -> Locator:
        return self.page.locator("tbody tr.row-line", has_text=text).first

    @property
    def path(self) -> str:
        parts = urlsplit(self.page.url)
        return parts.path + (f"?{parts.query}" if parts.query else "")

    @property
    def streams(self) -> int:
        return int(self.page.evaluate("window.__streams"))

    def hide(self, hidden: bool) -> None:
        """As if the reader went to another tab, or came back."""
        self.page.evaluate(
            """hidden => {
                Object.defineProperty(document, "hidden", { configurable: true, get: () => hidden });
                document.dispatchEvent(new Event("visibilitychange"));
            }""",
            hidden,
        )

    # What it is judged by

    def problems(self) -> list[str]:
        if not self.page.is_closed():
            ran = self.page.evaluate("window.__hacked")
            if ran is not None:
                self._problems.append(f"a script ran that was data: {ran}")
            self._problems += [f"refused by the policy: {text}" for text in self.page.evaluate("window.__refused ?? []")]
        return [f"{self.path}: {text}" for text in self._problems]

    def accessibility(self) -> list[str]:
        """What axe finds serious or critical: rule and elements."""
        self.page.evaluate(_axe())
        options = {
            "resultTypes": ["violations"],
            "runOnly": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"],
        }
        result: dict[str, Any] = self.page.evaluate("options => axe.run(document, options)", options)
        return [
            f"{self.path}: {found['id']} at {node['target']}: {node['html'][:200]} {node.get('failureSummary', '')}"
            for found in result["violations"]
            if found["impact"] in ("serious", "critical")
            for node in found["nodes"][:3]
        ]

    def overflow_px(self) -> int:
        """By how much the page is wider than the window."""
        return int(self.page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth"))

    def _on_request(self, request: Request) -> None:
        if not request.url.startswith((self.url + "/", "data:", "blob:")):
            self._problems.append(f"asked another host: {request.url}")

    def _on_console(self, message: ConsoleMessage) -> None:
        text = f"{message.text} {message.location.get('url', '')}"
        if message.type in ("error", "warning") and not (self.allowed and re.search(self.allowed, text)):
            self._problems.append(f"console {message.type}: {text}")


def watch(page: Page, url: str, allowed: str | None = None) -> Watched:
    watched = Watched(page, url, allowed)
    page.set_default_timeout(TIMEOUT_MS)
    page.add_init_script(_INIT)
    page.on("request", watched._on_request)
    page.on("console", watched._on_console)
    page.on("pageerror", lambda error: watched._problems.append(f"thrown: {error}"))
    return watched
