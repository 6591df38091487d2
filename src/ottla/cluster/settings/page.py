"""Writes docs/settings.md from the table: `python -m ottla.cluster.settings.page > docs/settings.md`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator

from ottla.cluster.settings.broker import BROKER_SETTINGS, SYNONYMS
from ottla.cluster.settings.client_metrics import CLIENT_METRICS_SETTINGS
from ottla.cluster.settings.setting import INT_MAX, LONG_MAX, Setting
from ottla.cluster.settings.topic import TOPIC_SETTINGS

_HEAD = """# Settings

This page is generated from the table in `src/ottla/cluster/settings/` by `python -m ottla.cluster.settings.page`; a test checks
that it is current. The names, types, defaults and limits are Apache Kafka's.

```console
$ ottla serve --config server.properties --set log.retention.hours=24
```

A value comes from `--set name=value`, else from the environment (`log.segment.bytes` is `OTTLA_LOG_SEGMENT_BYTES`), else from
`server.properties`, else it is the default below. `ottla serve` without `listeners` and `log.dirs` listens on
`PLAINTEXT://127.0.0.1:9092` and keeps its data in `./ottla-data`.

A broker with an unknown setting or an invalid value does not start. It prints all problems at once, with the allowed values. A
variable that begins with `OTTLA_` and resembles no setting is ignored and logged: Kubernetes sets `OTTLA_SERVICE_HOST` for a
service `ottla`. Settings of Kafka that Ottla does not use are accepted with a warning; they are listed at the end. So are
settings of clients, other than for TLS and logins, and what the images of Confluent write: Kafka ignores them too.

"Changes" says whether a setting can be changed while the broker runs: `no`, `broker` (for one broker), `cluster` (for one or all
brokers).
"""

_CHANGES = {"read-only": "no", "per-broker": "broker", "cluster-wide": "cluster"}


def render() -> str:
    parts = [_HEAD, *_broker_part(), *_topic_part(), *_client_metrics_part(), *_unused_part()]
    return "\n".join(parts) + "\n"


def _broker_part() -> Iterator[str]:
    yield "## Broker\n"
    yield from _table(
        ("Setting", "Type", "Default", "Allowed", "Changes", "What it is"),
        _rows(BROKER_SETTINGS, lambda setting: _CHANGES[setting.update_mode]),
    )
    yield "\nSynonyms; the first one that is set is used:\n"
    for synonyms in dict.fromkeys(SYNONYMS.values()):
        yield "- " + ", ".join(f"`{name}`" for name, _ in synonyms)
    yield ""


def _topic_part() -> Iterator[str]:
    yield "## Topic\n"
    yield "Set when a topic is created, or changed later. A topic without a value uses the broker's setting.\n"
    yield from _table(
        ("Setting", "Type", "Default", "Allowed", "Broker setting", "What it is"),
        _rows(TOPIC_SETTINGS, lambda setting: f"`{setting.server_default}`" if setting.server_default else ""),
    )
    yield ""


def _client_metrics_part() -> Iterator[str]:
    yield "## Client metrics\n"
    yield "Of a subscription (`kafka-client-metrics.sh`, KIP-714). Matching clients push their metrics; /metrics shows them.\n"
    yield from _table(
        ("Setting", "Type", "Default", "Allowed", "What it is"),
        (row[:4] + row[5:] for row in _rows(CLIENT_METRICS_SETTINGS, lambda setting: "")),
    )
    yield ""


def _unused_part() -> Iterator[str]:
    yield "## Without effect\n"
    yield "Accepted and checked, so that an existing `server.properties` works; the broker logs a warning.\n"
    for title, settings in (("Broker", BROKER_SETTINGS), ("Topic", TOPIC_SETTINGS)):
        yield f"### {title}\n"
        yield from _table(
            ("Setting", "Default", "What it is in Kafka"),
            ((f"`{setting.name}`", _default(setting), setting.doc) for setting in settings.values() if not setting.used),
        )
        yield ""


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> Iterator[str]:
    yield "| " + " | ".join(head) + " |"
    yield "|" + "---|" * len(head)
    for row in rows:
        yield "| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |"


def _rows(settings: dict[str, Setting], fifth: Callable[[Setting], str]) -> Iterator[tuple[str, ...]]:
    for setting in settings.values():
        if setting.used:
            allowed = setting.valid.words if setting.valid is not None else ""
            yield f"`{setting.name}`", setting.type.words, _default(setting), allowed, fifth(setting), setting.doc


def _default(setting: Setting) -> str:
    if setting.default is None:
        return ""
    if setting.default in (INT_MAX, LONG_MAX):
        return "no limit"
    text = setting.render(setting.default)
    return f"`{text}`" if text else ""


if __name__ == "__main__":
    sys.stdout.write(render())
