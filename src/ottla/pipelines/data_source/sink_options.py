"""The options of a query that writes with `format("ottla")`, with the names of Spark's Kafka sink.

Parses and checks them (`InvalidOption`). Never connects, imports no Spark.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Final

from ottla.client.options import ClientOptions, InvalidOption, client_options
from ottla.pipelines.values import Framed
from ottla.records.compression import CODEC_NAMES
from ottla.schemas.model import AVRO, JSON, PROTOBUF

_REGISTRY: Final = "registry."
_REGISTRY_OWN: Final = (
    "subject",
    "version",
    "schema",
    "schema.type",
    "schema.header",
    "key.subject",
    "key.schema",
    "key.schema.type",
)
_KNOWN: Final = ("topic", "includeHeaders")
_SPARKS: Final = frozenset({"path", "checkpointlocation", "queryname"})
"""Of every sink, or of the query."""
_OURS: Final = frozenset({"acks", "compression.type"})


@dataclass(frozen=True, slots=True)
class SinkOptions:
    client: ClientOptions
    topic: str | None
    """None: a column names it."""
    codec: int
    key: Framed | None
    """The schemas of keys and values. None: they are written as they are."""
    value: Framed | None


def sink_options(options: Mapping[str, str]) -> SinkOptions:
    given: dict[str, str] = {}
    for name, value in options.items():
        lower = name.lower()
        if lower.startswith(("kafka.", _REGISTRY)) or lower in ("topic", "includeheaders"):
            given[lower] = value
        elif lower not in _SPARKS:
            near = get_close_matches(name, _KNOWN, 1)
            raise InvalidOption(
                name, value, f"a query that writes has no such option{f'; did you mean {near[0]}?' if near else ''}"
            )
    codec = given.get("kafka.compression.type", "lz4").lower()
    if codec not in CODEC_NAMES:
        raise InvalidOption("kafka.compression.type", codec, f"it is one of {', '.join(CODEC_NAMES)}")
    if given.get("kafka.acks", "all") not in ("all", "-1"):
        raise InvalidOption("kafka.acks", given["kafka.acks"], "records are written with acks=all")
    topic = given.get("topic") or None
    return SinkOptions(client_options(given, _OURS), topic, CODEC_NAMES.index(codec), *_schemas(given, topic))


def _schemas(given: Mapping[str, str], topic: str | None) -> tuple[Framed | None, Framed | None]:
    found = {name.removeprefix(_REGISTRY): value for name, value in given.items() if name.startswith(_REGISTRY)}
    if not found:
        return None, None
    if not found.get("url"):
        raise InvalidOption("registry.url", "", "it is the address of a schema registry: http://host:8081")
    subject = found.get("subject") or (None if topic is None else f"{topic}-value")
    if subject is None and "key.subject" not in found:
        raise InvalidOption("registry.subject", "", "it is the subject of the values, as a column names their topics")
    version: int | str = found.get("version", "latest").lower()
    if version != "latest":
        if not version.isdecimal() or int(version) < 1:  # type: ignore[union-attr]  # text
            raise InvalidOption("registry.version", version, "it is latest or a whole number above 0")
        version = int(version)
    in_header = found.get("schema.header", "false").lower()
    if in_header not in ("true", "false"):
        raise InvalidOption("registry.schema.header", in_header, "it is true or false")
    settings = tuple(sorted((name, value) for name, value in found.items() if name not in _REGISTRY_OWN))

    def framed(part: str, subject: str | None, version: int | str) -> Framed | None:
        if subject is None:
            return None
        schema = found.get(f"{part}schema")
        kind = found.get(f"{part}schema.type", "" if schema is None else AVRO).upper()
        if kind not in (AVRO, JSON, PROTOBUF, ""):
            raise InvalidOption(f"registry.{part}schema.type", kind, f"it is one of {AVRO}, {JSON}, {PROTOBUF}")
        return Framed(kind, subject, version, schema, settings, in_header == "true")

    return framed("key.", found.get("key.subject"), "latest"), framed("", subject, version)
