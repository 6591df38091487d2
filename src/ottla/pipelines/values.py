"""What the bytes of a value (or key) are: `json`, `avro`, `string`, `bytes`. Definitions only; `reading` and `encoding` act.

The names shadow builtins on purpose: they are read as `p.json(...)`, `p.bytes()`.
"""

from __future__ import annotations

import builtins
from dataclasses import dataclass
from typing import Any

from ottla.pipelines.failure import PipelineError


@dataclass(frozen=True)
class Json:
    """JSON objects. Reading needs a schema: Spark's DDL (`"id long, at timestamp"`) or a `StructType`."""

    schema: Any = None
    options: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Avro:
    """Avro's binary encoding of one record, without any framing. `schema` is the text of the Avro schema."""

    schema: str


@dataclass(frozen=True)
class String:
    """UTF-8 text, in a column `value`."""


@dataclass(frozen=True)
class Bytes:
    """Bytes as they are, in a column `value`."""


Value = Json | Avro | String | Bytes


def json(schema: Any = None, **options: object) -> Json:
    """`options` are those of Spark's `from_json` and `to_json` (`timestampFormat`, `dateFormat`, …)."""
    return Json(schema, tuple(sorted((name, _text(value)) for name, value in options.items())))


def avro(schema: str) -> Avro:
    if not isinstance(schema, str):
        raise PipelineError("avro wants the text of an Avro schema", hint="json.dumps makes a text of a dict")
    return Avro(schema)


def string() -> String:
    return String()


def bytes() -> Bytes:
    return Bytes()


def _text(value: object) -> str:
    return builtins.str(value).lower() if isinstance(value, bool) else builtins.str(value)
