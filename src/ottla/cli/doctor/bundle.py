"""A zip file with what somebody who helps needs to see, without secrets.

1. Values that brokers call sensitive, and client properties that are secrets, are left out.
2. Every text is searched for the secrets that the client properties hold, also as part of another value, before it is written.
3. It holds no records, keys or values.
"""

from __future__ import annotations

import json
import platform
import re
import sys
import zipfile
from collections.abc import Callable, Iterable, Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

from ottla.cli.config import describe_settings
from ottla.cli.doctor.case import Case
from ottla.cli.doctor.finding import Finding
from ottla.cli.failure import EXIT_USAGE, Failure
from ottla.cli.profile.definition import is_secret

HIDDEN = "(hidden)"
_QUOTED = re.compile(r"""(?:password|secret|token)\w*\s*=\s*["']([^"']+)["']""", re.IGNORECASE)
_IN_URL = re.compile(r"(?<=://)[^/\s:@]+:[^/\s@]+(?=@)")
_SHORT = 4
"""A shorter secret is too common a text to be searched for."""


def secrets_of(properties: Mapping[str, Any]) -> list[str]:
    """The secret values, and the quoted passwords in a login configuration. The longest first."""
    found = set()
    for name, value in properties.items():
        text = str(value)
        if is_secret(name, text):
            found |= {text, *_QUOTED.findall(text)}
    return sorted((each for each in found if len(each) >= _SHORT), key=len, reverse=True)


def scrub(text: str, secrets: Iterable[str]) -> str:
    for secret in secrets:
        for form in (secret, json.dumps(secret)[1:-1]):
            text = text.replace(form, HIDDEN)
    text = _QUOTED.sub(lambda match: match[0].replace(match[1], HIDDEN), text)
    return _IN_URL.sub(HIDDEN, text)


def write_bundle(path: Path, case: Case, findings: list[Finding]) -> list[str]:
    """Write the file. Returns the names of what it holds. A part that cannot be had holds the reason instead."""
    secrets = secrets_of(case.connection.properties)
    parts: dict[str, Callable[[], Any]] = {
        "findings.json": lambda: [finding.document() for finding in findings],
        "software.json": _software,
        "client.json": lambda: _client(case),
        "cluster.json": lambda: _cluster(case),
        "api-versions.json": lambda: _versions(case),
        "brokers.json": lambda: {
            str(broker.broker_id): _settings(case, "broker", str(broker.broker_id)) for broker in case.brokers
        },
        "topics.json": lambda: {topic: _settings(case, "topic", topic, overrides=True) for topic in sorted(case.view.topics)},
        "log-dirs.json": lambda: _log_dirs(case),
        "groups.json": lambda: _groups(case),
        "transactions.json": lambda: _transactions(case),
    }
    try:
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as bundle:
            path.chmod(0o600)
            for name, part in parts.items():
                text = json.dumps(_tried(part), ensure_ascii=False, indent=2, default=str)
                bundle.writestr(name, scrub(text, secrets) + "\n")
    except OSError as error:
        raise Failure(f"cannot write {path}: {error.strerror}", exit_code=EXIT_USAGE) from None
    return list(parts)


def _tried(part: Callable[[], Any]) -> Any:
    try:
        return part()
    except Failure as failure:
        return {"error": failure.message}


def _software() -> dict[str, Any]:
    names = ("ottla", "confluent-kafka", "typer", "rich", "uvloop", "cramjam", "pyspark", "pyarrow")
    versions: dict[str, str | None] = {}
    for name in names:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            versions[name] = None
    return {"python": sys.version, "platform": platform.platform(), "packages": versions}


def _client(case: Case) -> dict[str, Any]:
    properties = {name: HIDDEN if is_secret(name, str(value)) else value for name, value in case.connection.properties.items()}
    return {"bootstrap.servers": case.connection.bootstrap_servers, **properties}


def _cluster(case: Case) -> dict[str, Any]:
    case.view.read_offsets(list(case.view.partitions.values()))
    return {
        "cluster_id": case.view.cluster_id,
        "controller_id": case.view.controller_id,
        "brokers": [{"id": each.broker_id, "address": each.address, "rack": each.rack} for each in case.view.all_brokers],
        "partitions": [each.document() for each in case.view.partitions.values()],
    }


def _versions(case: Case) -> dict[str, Any]:
    from ottla.cli.doctor.software import versions_of

    return {str(broker): supported for broker, supported in versions_of(case).items()}


def _settings(case: Case, kind: str, name: str, *, overrides: bool = False) -> Any:
    from confluent_kafka.admin import ConfigSource

    try:
        entries = describe_settings(case.connection, kind, name)
    except Failure as failure:
        return {"error": failure.message}
    return {
        str(key): {
            "value": HIDDEN if entry.is_sensitive or is_secret(str(key), str(entry.value or "")) else entry.value,
            "source": ConfigSource(entry.source).name,
        }
        for key, entry in sorted(entries.items())
        if not overrides or ConfigSource(entry.source) is ConfigSource.DYNAMIC_TOPIC_CONFIG
    }


def _log_dirs(case: Case) -> dict[str, Any]:
    from ottla.cli.log_dirs.view import LogDirs

    log_dirs = LogDirs(case.connection)
    return {
        str(broker.broker_id): _tried(lambda broker=broker: [each.document() for each in log_dirs.of(broker.broker_id)])  # type: ignore[misc]
        for broker in case.brokers
    }


def _groups(case: Case) -> list[dict[str, Any]]:
    from ottla.cli.group.view import find_groups, list_groups, with_partitions

    names = [row["group"] for row in list_groups(case.connection)]
    found = find_groups(case.connection, names, missing_ok=True) if names else []
    return [with_partitions(case.connection, group).document() for group in found]


def _transactions(case: Case) -> list[dict[str, Any]]:
    from dataclasses import asdict

    from ottla.cli.txn.view import Transactions

    return [asdict(each) for each in Transactions(case.connection).listed()]
