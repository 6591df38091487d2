"""Who may ask: rules over the Host, Origin and Content-Type of a request."""

from __future__ import annotations

import pytest

from ottla.cli.console.settings import ConsoleSettings
from ottla.console.guard import host_of, known_hosts, name_of, refusal, routed_path

HERE = known_hosts(ConsoleSettings("any:9092"))


def refused(method: str = "GET", path: str = "/api/topics", **headers: str) -> str | None:
    given = {"host": "127.0.0.1:8080", **{name.replace("_", "-"): value for name, value in headers.items()}}
    return refusal(method, path, given, HERE, "http")


@pytest.mark.parametrize("host", ["127.0.0.1:8080", "localhost:8080", "[::1]:8080", "LOCALHOST"])
def test_our_names(host: str) -> None:
    assert refused(host=host) is None


@pytest.mark.parametrize(
    "host", ["evil.example:8080", "127.0.0.1.evil.example", "", "localhost.evil.example:8080", "169.254.169.254"]
)
def test_names_that_point_here_from_elsewhere(host: str) -> None:
    assert refused(host=host) is not None
    assert refused(host=host, path="/") is not None


@pytest.mark.parametrize(
    "origin", ["http://evil.example", "https://127.0.0.1:8080", "http://127.0.0.1:9999", "null", "http://localhost:8080"]
)
def test_pages_of_other_sites(origin: str) -> None:
    """Another port, scheme or name is another site, also of this machine."""
    assert refused("POST", content_type="application/json", origin=origin) is not None
    assert refused(origin=origin) is not None


def test_our_own_page() -> None:
    assert refused("POST", content_type="application/json; charset=utf-8", origin="http://127.0.0.1:8080") is None
    assert refused(sec_fetch_site="same-origin") is None


def test_a_browser_that_says_cross_site() -> None:
    assert refused(sec_fetch_site="cross-site") is not None
    assert refused(sec_fetch_site="same-site") is not None
    # A link from elsewhere may open a page.
    assert refused(path="/topics", sec_fetch_site="cross-site") is None


@pytest.mark.parametrize("content_type", ["", "text/plain", "application/x-www-form-urlencoded", "multipart/form-data"])
def test_a_form_changes_nothing(content_type: str) -> None:
    """What a page of another site can send without being asked about first."""
    assert refused("POST", content_type=content_type) is not None
    assert refused("DELETE", content_type=content_type) is not None


def test_further_names() -> None:
    names = known_hosts(ConsoleSettings("any:9092", host="10.0.0.7", names=("kafka.example",)))
    assert names is not None
    assert {"10.0.0.7", "kafka.example"} <= names
    assert known_hosts(ConsoleSettings("any:9092", host="0.0.0.0")) is None


@pytest.mark.parametrize(("authority", "host"), [("[::1]:80", "::1"), ("A.b:80", "a.b"), ("a", "a"), ("::1", "::1")])
def test_hosts(authority: str, host: str) -> None:
    assert host_of(authority) == host


@pytest.mark.parametrize(
    ("raw", "routed", "named"),
    [
        (b"/api/groups/plain", "/api/groups/plain", "plain"),
        (b"/api/groups/a%2Fb%25%23%20c", "/api/groups/a%2Fb%25# c", "a/b%# c"),
        (b"/api/groups/%3Cb%3E%C3%A9?x=%2F", "/api/groups/<b>é", "<b>é"),
        (b"/%61pi/groups/x", "/api/groups/x", "x"),
    ],
)
def test_a_name_with_a_slash_stays_one_segment(raw: bytes, routed: str, named: str) -> None:
    assert routed_path(raw) == routed
    assert name_of(routed.rsplit("/", 1)[1]) == named
