"""Parses a schema of any type. The one door into the formats."""

from __future__ import annotations

from collections.abc import Sequence

from ottla.schemas.model import InvalidSchema, ParsedSchema, ResolvedReference


def parse(schema_type: str, text: str, references: Sequence[ResolvedReference] = ()) -> ParsedSchema:
    """The schema of this text. InvalidSchema says where and why it is none.

    `references` has all referenced schemas, those of references too, each before those that use it.
    """
    raise InvalidSchema(f"{schema_type} is not there yet")
