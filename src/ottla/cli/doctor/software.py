"""Versions: do brokers speak the same, and what this client needs?"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from ottla.cli.config import describe_settings
from ottla.cli.doctor.case import Case
from ottla.cli.doctor.finding import Finding, Severity
from ottla.cli.failure import Failure
from ottla.cli.plain_request import call
from ottla.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from ottla.protocol.registry import API_BY_KEY

Versions = dict[str, tuple[int, int]]
_BETWEEN = "inter.broker.protocol.version"
_PRODUCE, _FETCH = "produce", "fetch"


def versions_of(case: Case) -> dict[int, Versions]:
    """What each broker that answers supports: requests, and their versions."""
    found = {}
    for broker in case.brokers:
        request = ApiVersionsRequest(client_software_name="ottla", client_software_version="0")
        try:
            answer = call(case.connection, "api_versions", 3, request, ApiVersionsResponse, broker.address)
        except Failure:
            continue  # `listeners` tells it
        found[broker.broker_id] = {
            API_BY_KEY[each.api_key].name if each.api_key in API_BY_KEY else f"api {each.api_key}": (
                each.min_version,
                each.max_version,
            )
            for each in answer.api_keys
        }
    return found


def versions(case: Case) -> Iterator[Finding]:
    kinds: dict[tuple[tuple[str, tuple[int, int]], ...], list[int]] = defaultdict(list)
    for broker, supported in versions_of(case).items():
        kinds[tuple(sorted(supported.items()))].append(broker)
    if len(kinds) > 1:
        groups = "; ".join(f"broker{'s' if len(ids) > 1 else ''} {', '.join(map(str, ids))}" for ids in kinds.values())
        yield Finding(
            "versions", Severity.WARNING, "brokers", f"they support different versions of requests: {groups}",
            "finish the upgrade: restart the older brokers with the newer software, one after the other",
        )  # fmt: skip
    yield from _between_brokers(case)


def _between_brokers(case: Case) -> Iterator[Finding]:
    set_to: dict[str, list[int]] = defaultdict(list)
    for broker in case.brokers:
        entry = describe_settings(case.connection, "broker", str(broker.broker_id)).get(_BETWEEN)
        if entry is not None:
            set_to[str(entry.value)].append(broker.broker_id)
    if len(set_to) > 1:
        text = "; ".join(f"{value} at {', '.join(map(str, ids))}" for value, ids in set_to.items())
        first = next(iter(set_to.values()))[0]
        yield Finding(
            "versions", Severity.WARNING, _BETWEEN, f"brokers differ: {text}", f"ottla config describe broker {first} {_BETWEEN}"
        )
