"""Settings of topics and brokers as documents: value, source, default, type and documentation."""

from __future__ import annotations

import html
import re
from collections.abc import Mapping
from typing import Any, Final

from ottla.cli.failure import Failure
from ottla.client.brokers import Brokers, Versions
from ottla.console.schema import BOOLEAN, STRING, document, listed, maybe
from ottla.errors import error_name
from ottla.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource

TOPIC: Final = 2
BROKER: Final = 4
CLUSTER_WIDE: Final = "default"
_WITH_SOURCES: Final[Versions] = (1, 4)
_SOURCES: Final = {1: "topic", 2: "broker", 3: "cluster", 4: "static", 5: "default", 6: "logger", 7: "client", 8: "group"}
_TYPES: Final = {
    1: "boolean", 2: "string", 3: "int", 4: "short", 5: "long", 6: "double", 7: "list", 8: "class", 9: "password"
}  # fmt: skip
_DEFAULT: Final = 5
_TAG: Final = re.compile(r"</?(?:a|b|br|code|div|em|i|li|ol|p|pre|span|strong|tt|ul)(?:\s[^<>]*)?/?>", re.IGNORECASE)
_BREAK: Final = re.compile(r"</?(?:p|br|ul|ol|li|div)\b", re.IGNORECASE)
_SPACE: Final = re.compile(r"\s+")

CONFIG = document(
    name=STRING,
    value=maybe(STRING),
    source=STRING,
    is_default=BOOLEAN,
    read_only=BOOLEAN,
    sensitive=BOOLEAN,
    type=maybe(STRING),
    documentation=maybe(STRING),
    default=maybe(STRING),
    synonyms=listed(document(name=STRING, value=maybe(STRING), source=STRING)),
)


async def read_configs(brokers: Brokers, kind: int, name: str) -> list[dict[str, Any]]:
    """The settings of a topic or a broker, by name. A broker is asked itself: only it knows its static settings."""
    asked = DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=None)
    request = DescribeConfigsRequest(resources=[asked], include_synonyms=True, include_documentation=True)
    if kind == BROKER and name:
        answer = await brokers.call(int(name), "describe_configs", request, versions=_WITH_SOURCES)
    else:
        answer = await brokers.call_any("describe_configs", request, versions=_WITH_SOURCES)
    (result,) = answer.results
    if result.error_code:
        code = error_name(result.error_code)
        raise Failure(f"settings of {name or 'all brokers'}: {result.error_message or code}", code=code)
    from ottla.cluster.settings import BROKER_SETTINGS, TOPIC_SETTINGS  # a tenth of the console's imports

    ours: Mapping[str, Any] = TOPIC_SETTINGS if kind == TOPIC else BROKER_SETTINGS
    return [_document(each, ours.get(each.name)) for each in sorted(result.configs, key=lambda each: str(each.name))]


def _document(entry: Any, ours: Any) -> dict[str, Any]:
    synonyms = [
        {"name": each.name, "value": each.value, "source": _SOURCES.get(each.source, "unknown")} for each in entry.synonyms
    ]
    return {
        "name": entry.name,
        "value": None if entry.is_sensitive else entry.value,
        "source": _SOURCES.get(entry.config_source, "unknown"),
        "is_default": entry.config_source == _DEFAULT,
        "read_only": entry.read_only,
        "sensitive": entry.is_sensitive,
        "type": _TYPES.get(entry.config_type) or (None if ours is None else ours.type.name.lower()),
        "documentation": plain(entry.documentation) if entry.documentation else None if ours is None else ours.doc,
        "default": _default_of(entry, ours),
        "synonyms": synonyms,
    }


def plain(documentation: str) -> str:
    """Without HTML, which Apache Kafka writes into what it says of its settings."""
    return _SPACE.sub(" ", html.unescape(_TAG.sub(lambda tag: " " if _BREAK.match(tag[0]) else "", documentation))).strip()


def _default_of(entry: Any, ours: Any) -> str | None:
    """The value without any override. A synonym in another unit (log.retention.hours of retention.ms) is none."""
    if entry.config_source == _DEFAULT:
        return None if entry.value is None else str(entry.value)
    unit = entry.name.rpartition(".")[2]
    for each in entry.synonyms:
        if each.source == _DEFAULT and (each.name.rpartition(".")[2] == unit or unit not in ("ms", "minutes", "hours")):
            return None if each.value is None else str(each.value)
    if ours is None:
        return None
    rendered = ours.render(ours.default)
    return None if rendered is None else str(rendered)
