"""`ottla connections`: who is connected to brokers, with which software, and how much each sends and gets.

Kafka's protocol does not tell this. Brokers of Ottla list their connections at `/connections` of `metrics.listener`; the
addresses come from the brokers' settings. Rates are the difference of two looks.
"""

from __future__ import annotations

import http.client
import json
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Annotated, Any

import typer

from ottla.cli.connection import Connection, unknown_broker
from ottla.cli.failure import EXIT_USAGE, Failure
from ottla.cli.options import DEFAULT_BOOTSTRAP_SERVERS, Bootstrap, CommandConfig, Json
from ottla.cli.output import note, print_document, print_table, size_text

_TIMEOUT_S = 5.0
_PAGE_BYTES_MAX = 64 << 20
_WILDCARDS = ("", "0.0.0.0", "::", "[::]")
_COUNTERS = ("requests", "bytes_in", "bytes_out")


class By(StrEnum):
    CONNECTION = "connection"
    CLIENT = "client"
    SOFTWARE = "software"
    ADDRESS = "address"


_FIELDS = {
    By.CLIENT: ("client_id", "principal", "software_name", "software_version"),
    By.SOFTWARE: ("software_name", "software_version"),
    By.ADDRESS: ("address",),
}


@dataclass(frozen=True, slots=True)
class Place:
    """Where a broker lists its connections."""

    broker: int | None
    url: str


@dataclass(slots=True)
class Group:
    """Connections with the same fields."""

    connections: int = 0
    rates: dict[str, float] = field(default_factory=lambda: dict.fromkeys(_COUNTERS, 0.0))


def connections(
    broker: Annotated[
        list[int] | None, typer.Option("--broker", min=0, metavar="ID", help="Only this broker (repeatable).")
    ] = None,
    by: Annotated[By, typer.Option("--by", help="One line for each, or for what connections have in common.")] = By.CONNECTION,
    interval: Annotated[
        str, typer.Option("--interval", metavar="DURATION", help="How long to measure rates; 0: averages since the beginning.")
    ] = "1s",
    metrics_url: Annotated[
        list[str] | None,
        typer.Option("--metrics-url", metavar="URL", help="http://host:9404 of a broker (repeatable). (default: its setting)"),
    ] = None,
    bootstrap_servers: Bootstrap = DEFAULT_BOOTSTRAP_SERVERS,
    command_config: CommandConfig = None,
    json_output: Json = False,
) -> None:
    """Show who is connected, with which software, and requests and bytes per second."""
    wait_s = _seconds(interval)
    if metrics_url:
        places = [Place(None, _page(url)) for url in metrics_url]
    else:
        places = places_of(Connection(bootstrap_servers, command_config), broker)
    first = {place: listed(place) for place in places}
    began = time.monotonic()
    if wait_s:
        time.sleep(wait_s)
    second = {place: listed(place) for place in places} if wait_s else first
    passed_s = time.monotonic() - began
    rows = [row for place in places for row in _rows(place, first[place], second[place], passed_s if wait_s else None)]
    rows.sort(key=lambda row: -row["requests_per_s"])
    if by is not By.CONNECTION:
        _show_groups(rows, _FIELDS[by], json_output=json_output)
    elif json_output:
        print_document(rows)
    else:
        _print(rows)


def _seconds(text: str) -> float:
    from ottla.filters.times import duration_ms

    found = 0 if text == "0" else duration_ms(text)
    if found is None:
        raise Failure(f"--interval {text!r} is not a duration", "write 1s, 500ms or 0", exit_code=EXIT_USAGE)
    return found / 1000


def _page(url: str) -> str:
    if not url.startswith(("http://", "https://")):
        url = f"http://{url}"
    return url.rstrip("/").removesuffix("/metrics").removesuffix("/connections") + "/connections"


def places_of(connection: Connection, wanted: Sequence[int] | None) -> list[Place]:
    """The pages of the brokers that have one. A Failure if none has, a note about each other one."""
    from ottla.cli.config import describe_settings

    brokers = connection.metadata().brokers
    for number in wanted or ():
        if number not in brokers:
            raise unknown_broker(number, brokers)
    found, problems = [], []
    for number in sorted(set(wanted) if wanted else brokers):
        entry = describe_settings(connection, "broker", str(number)).get("metrics.listener")
        host, _, port = str(entry.value or "").rpartition(":") if entry is not None else ("", "", "")
        if port:
            reached = str(brokers[number].host) if host in _WILDCARDS else host
            reached = f"[{reached}]" if ":" in reached and not reached.startswith("[") else reached
            found.append(Place(number, f"http://{reached}:{port}/connections"))
        else:
            why = "has no metrics.listener" if entry is not None else "is no broker of Ottla: Kafka does not list its connections"
            problems.append(f"broker {number} {why}")
    if not found:
        raise Failure(
            f"no broker lists its connections: {problems[0]}",
            "start brokers with metrics.listener=HOST:PORT in server.properties, or with `ottla serve --metrics HOST:PORT`",
            code="NO_METRICS_LISTENER",
        )
    for problem in problems:
        note(problem)
    return found


def listed(place: Place) -> list[dict[str, Any]]:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(place.url, timeout=_TIMEOUT_S) as answer:
            document = json.loads(answer.read(_PAGE_BYTES_MAX))
    except urllib.error.HTTPError as error:
        raise Failure(f"{place.url} answers {error.code} {error.reason}", "is it the metrics.listener of a broker?") from None
    except (OSError, http.client.HTTPException) as error:
        why = getattr(error, "reason", None) or error
        raise Failure(
            f"{place.url} cannot be read: {why}",
            "metrics.listener may be open on the broker's machine only; --metrics-url names another address",
            code="METRICS_AWAY",
        ) from None
    except ValueError:
        raise Failure(f"{place.url} is not the page of a broker", "is it the metrics.listener of a broker?") from None
    return [each for each in document if isinstance(each, dict)] if isinstance(document, list) else []


def waiting_at(connection: Connection, broker: int) -> list[dict[str, Any]]:
    """The connections of a broker whose request waits there: for records, for replicas, for members of a group."""
    (place,) = places_of(connection, [broker])
    return [each for each in listed(place) if each.get("waits_in")]


def _rows(
    place: Place, before: Iterable[dict[str, Any]], now: Iterable[dict[str, Any]], passed_s: float | None
) -> Iterable[dict[str, Any]]:
    """Each connection that is open now, with its rates. One that is new since the first look counts from its beginning."""
    known = {(each["address"], each["port"]): each for each in before}
    for each in now:
        earlier = known.get((each["address"], each["port"]), {})
        # Another connection may have got the port.
        if earlier.get("requests", 0) > each["requests"]:
            earlier = {}
        span_s = max(each["age_seconds"] if passed_s is None else passed_s, 0.001)
        base = earlier if passed_s is not None else {}
        rates = {f"{name}_per_s": round((each[name] - base.get(name, 0)) / span_s, 1) for name in _COUNTERS}
        yield {"broker": place.broker, **each, **rates}


def _show_groups(rows: list[dict[str, Any]], names: tuple[str, ...], *, json_output: bool) -> None:
    groups: dict[tuple[Any, ...], Group] = {}
    for row in rows:
        group = groups.setdefault(tuple(row[name] for name in names), Group())
        group.connections += 1
        for name in _COUNTERS:
            group.rates[name] += row[f"{name}_per_s"]
    ordered = sorted(groups.items(), key=lambda pair: (-pair[1].rates["requests"], -pair[1].connections))
    if json_output:
        print_document(
            [
                {
                    **dict(zip(names, key, strict=True)),
                    "connections": group.connections,
                    **{f"{name}_per_s": round(rate, 1) for name, rate in group.rates.items()},
                }
                for key, group in ordered
            ]
        )
        return
    columns = [name.upper().replace("_", "-") for name in names]
    print_table(
        [*columns, "CONNECTIONS", "REQ/S", "IN/S", "OUT/S"],
        [
            (
                *key,
                group.connections,
                round(group.rates["requests"], 1),
                size_text(group.rates["bytes_in"]),
                size_text(group.rates["bytes_out"]),
            )
            for key, group in ordered
        ],
        right=["CONNECTIONS", "REQ/S", "IN/S", "OUT/S"],
        none="-",
    )


_COLUMNS: dict[str, Callable[[dict[str, Any]], object]] = {
    "BROKER": lambda row: row["broker"],
    "ADDRESS": lambda row: f"{row['address']}:{row['port']}",
    "CLIENT": lambda row: row["client_id"] or "-",
    "SOFTWARE": lambda row: f"{row['software_name']} {row['software_version']}".strip() or "-",
    "PRINCIPAL": lambda row: row["principal"],
    "LISTENER": lambda row: row["listener"],
    "AGE": lambda row: _span(row["age_seconds"]),
    "IDLE": lambda row: _span(row["idle_seconds"]),
    "REQ/S": lambda row: row["requests_per_s"],
    "IN/S": lambda row: size_text(row["bytes_in_per_s"]),
    "OUT/S": lambda row: size_text(row["bytes_out_per_s"]),
}


def _print(rows: list[dict[str, Any]]) -> None:
    print_table(
        list(_COLUMNS),
        [[value(row) for value in _COLUMNS.values()] for row in rows],
        right=["BROKER", "AGE", "IDLE", "REQ/S", "IN/S", "OUT/S"],
        none="-",
    )


def _span(seconds: float) -> str:
    """`42s`, `12m`, `3h`, `2d`."""
    for size, unit in ((86_400, "d"), (3600, "h"), (60, "m")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f}{unit}"
    return f"{seconds:.0f}s"
