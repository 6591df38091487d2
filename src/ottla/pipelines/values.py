"""The formats of keys and values: `json`, `avro`, `string`, `bytes`, `debezium`. Users write `p.json(...)` and `p.bytes()`."""

from __future__ import annotations

from dataclasses import dataclass
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
class String:
    """UTF-8 text, in a column `value`."""


@dataclass(frozen=True)
class Bytes:
    """Plain bytes, in a column `value`."""


@dataclass(frozen=True)
class Debezium:
    """Change events of Debezium as JSON, with or without the schema part. `schema` is that of the table's rows."""

    schema: Any
    columns: tuple[str, ...] = ()
    """Parts of the event that become columns: op, ts_ms, source, before."""
    options: tuple[tuple[str, str], ...] = ()


Value = Json | Avro | String | Bytes | Debezium


def json(schema: Any = None, **options: object) -> Json:
    """JSON objects. `options` are those of Spark's `from_json` and `to_json` (`timestampFormat`, `dateFormat`, …)."""
    return Json(schema, tuple(sorted((name, option_text(value)) for name, value in options.items())))


def debezium(schema: Any, *, columns: tuple[str, ...] | list[str] = (), **options: object) -> Debezium:
    """Change events of Debezium: each is the row after the change, or before its removal, with the column `ottla_deleted`.

    `schema` has the columns of the table, as Spark's DDL or a StructType. `columns` adds parts of the event: op, ts_ms, source,
    before. `options` are those of Spark's `from_json`.
    """
    unknown = [name for name in columns if name not in EVENT_PARTS]
    if unknown:
        raise PipelineError(f"a change event has no part {unknown[0]!r}", hint=f"its parts are {', '.join(EVENT_PARTS)}")
    return Debezium(schema, tuple(columns), tuple(sorted((name, option_text(value)) for name, value in options.items())))


def avro(schema: str) -> Avro:
    """Binary Avro. `schema` is the Avro schema as JSON text."""
    if not isinstance(schema, str):
        raise PipelineError("p.avro needs an Avro schema as text", hint="convert a dict with json.dumps")
    return Avro(schema)


def string() -> String:
    """UTF-8 text, in a column `value`."""
    return String()


def bytes() -> Bytes:
    """Plain bytes, in a column `value`."""
    return Bytes()


def option_text(value: object) -> str:
    """An option of Spark or a setting as text."""
    return str(value).lower() if isinstance(value, bool) else str(value)
