"""The formats of keys and values: `json`, `avro`, `json_schema`, `protobuf`, `string`, `bytes`, `debezium`."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ottla.pipelines.failure import PipelineError

EVENT_PARTS = ("op", "ts_ms", "source", "before")


@dataclass(frozen=True)
class Json:
    """JSON objects. Reading needs a schema: Spark's DDL (`"id long, at timestamp"`) or a `StructType`."""

    schema: Any = None
    options: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Avro:
    """The binary Avro encoding of one record, without framing. `schema` is the Avro schema as JSON text."""

    schema: str


@dataclass(frozen=True)
class Framed:
    """Values that name their schema by its id in a schema registry.

    A source reads each by its own schema and gives the columns of the reader's: `schema`, or a version of the subject. A sink
    registers `schema`, or takes that version.
    """

    schema_type: str
    """Empty: that of the version."""
    subject: str
    version: int | str = "latest"
    schema: str | None = None
    registry: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    """Settings with the names of Confluent's clients."""
    schema_header: bool = False
    """Whether a sink names the schema by its GUID in a header instead of by its id before the value."""


@dataclass(frozen=True)
class String:
    """UTF-8 text, in a column `value`."""


@dataclass(frozen=True)
class Bytes:
    """Plain bytes, in a column `value`."""


@dataclass(frozen=True)
class Debezium:
    """Change events of Debezium, as JSON with or without the schema part, or as Avro with the schema of a registry."""

    schema: Any
    """Of the table's rows. None: the registry has it."""
    columns: tuple[str, ...] = ()
    """Parts of the event that become columns: op, ts_ms, source, before."""
    options: tuple[tuple[str, str], ...] = ()
    event: Framed | None = None
    """The format of Avro events; None for JSON."""
    key: Framed | None = None
    """The format of their keys."""


Value = Json | Avro | Framed | String | Bytes | Debezium

REGISTRY_URL = "OTTLA_REGISTRY"
"""The variable with the address of the registry."""


def json(schema: Any = None, **options: object) -> Json:
    """JSON objects. `options` are those of Spark's `from_json` and `to_json` (`timestampFormat`, `dateFormat`, …)."""
    return Json(schema, tuple(sorted((name, option_text(value)) for name, value in options.items())))


def debezium(
    schema: Any = None,
    *,
    subject: str | None = None,
    key_subject: str | None = None,
    registry: str | Mapping[str, object] | None = None,
    columns: tuple[str, ...] | list[str] = (),
    **options: object,
) -> Debezium:
    """Change events of Debezium: each is the row after the change, or before its removal, with the column `ottla_deleted`.

    Events in JSON need the `schema` of the table's columns, as Spark's DDL or a StructType; `options` are those of Spark's
    `from_json`. Events in Avro have theirs in a registry: `subject` names it, `key_subject` that of the keys (by default `…-key`
    of `…-value`), `registry` is as for `p.avro`. `columns` adds parts of the event: op, ts_ms, source, before.
    """
    unknown = [name for name in columns if name not in EVENT_PARTS]
    if unknown:
        raise PipelineError(f"a change event has no part {unknown[0]!r}", hint=f"its parts are {', '.join(EVENT_PARTS)}")
    if (schema is None) == (subject is None):
        hint = 'write p.debezium("id long, name string"), or p.debezium(subject="shop.public.customers-value")'
        raise PipelineError("change events have either a schema, as JSON, or a subject, as Avro", hint=hint)
    given = tuple(sorted((name, option_text(value)) for name, value in options.items()))
    if subject is None:
        return Debezium(schema, tuple(columns), given)
    if options:
        raise PipelineError(f"{given[0][0]!r} is an option of JSON, and the events are Avro")
    if key_subject is None:
        if not subject.endswith("-value"):
            raise PipelineError(f"the subject of the keys of {subject!r} is not known", hint="write key_subject=…")
        key_subject = f"{subject.removesuffix('-value')}-key"
    event, key = (_framed("AVRO", name, "latest", None, registry) for name in (subject, key_subject))
    return Debezium(None, tuple(columns), (), event, key)


def avro(
    schema: str | None = None,
    *,
    subject: str | None = None,
    version: int | str = "latest",
    registry: str | Mapping[str, object] | None = None,
    schema_header: bool = False,
) -> Avro | Framed:
    """Binary Avro. `schema` is the Avro schema as JSON text.

    With `subject` the values have the framing of a schema registry, and the schema may be left out: it is the `version` of the
    subject. `registry` is its address, or settings such as `{"url": …, "basic.auth.user.info": …}`; by default the variable
    OTTLA_REGISTRY. With `schema_header` a sink names the schema by its GUID in a header; sources read both.
    """
    if subject is not None:
        return _framed("AVRO", subject, version, schema, registry, schema_header)
    if not isinstance(schema, str):
        raise PipelineError("p.avro needs an Avro schema as text, or a subject", hint="convert a dict with json.dumps")
    return Avro(schema)


def json_schema(
    subject: str,
    *,
    version: int | str = "latest",
    schema: str | None = None,
    registry: str | Mapping[str, object] | None = None,
    schema_header: bool = False,
) -> Framed:
    """JSON objects with the framing of a schema registry. The arguments are those of `p.avro`."""
    return _framed("JSON", subject, version, schema, registry, schema_header)


def protobuf(
    subject: str,
    *,
    version: int | str = "latest",
    schema: str | None = None,
    registry: str | Mapping[str, object] | None = None,
    schema_header: bool = False,
) -> Framed:
    """Protobuf messages with the framing of a schema registry. The arguments are those of `p.avro`."""
    return _framed("PROTOBUF", subject, version, schema, registry, schema_header)


def _framed(
    schema_type: str,
    subject: str,
    version: int | str,
    schema: str | None,
    registry: str | Mapping[str, object] | None,
    schema_header: bool = False,
) -> Framed:
    if not isinstance(subject, str) or not subject:
        raise PipelineError(f"subject={subject!r} is no name of a subject", hint="most subjects are TOPIC-value or TOPIC-key")
    if schema is not None and not isinstance(schema, str):
        raise PipelineError("a schema is text", hint="convert a dict with json.dumps")
    if version != "latest" and (isinstance(version, bool) or not isinstance(version, int) or version < 1):
        raise PipelineError(f'version={version!r} is neither "latest" nor a number from 1')
    if registry is None:
        registry = os.environ.get(REGISTRY_URL, "http://127.0.0.1:8081")
    given = {"url": registry} if isinstance(registry, str) else registry
    settings = tuple(sorted((str(name), option_text(value)) for name, value in given.items()))
    return Framed(schema_type, subject, version, schema, settings, schema_header)


def string() -> String:
    """UTF-8 text, in a column `value`."""
    return String()


def bytes() -> Bytes:
    """Plain bytes, in a column `value`."""
    return Bytes()


def option_text(value: object) -> str:
    """An option of Spark or a setting as text."""
    return str(value).lower() if isinstance(value, bool) else str(value)
