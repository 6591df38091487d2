"""What the worker process does with schemas: the functions of `ottla.schemas.work`, and those that save round trips."""

from __future__ import annotations

from collections.abc import Sequence

from ottla.schemas.model import InvalidSchema
from ottla.schemas.work import Described, SchemaText, check, describe, formatted

__all__ = ["check", "describe", "describe_all", "formatted"]


def describe_all(schemas: Sequence[SchemaText]) -> list[Described | None]:
    """Each schema as it is stored here; None for one that does not parse, which another registry may have let in."""
    return [_described(schema) for schema in schemas]


def _described(schema: SchemaText) -> Described | None:
    try:
        return describe(schema)
    except (InvalidSchema, RecursionError):
        return None
