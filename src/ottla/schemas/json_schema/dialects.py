"""The drafts of JSON Schema: their metaschemas, and where they differ for a comparison."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jsonschema
from jsonschema.protocols import Validator
from referencing import Specification
from referencing.jsonschema import DRAFT4, DRAFT6, DRAFT7, DRAFT201909, DRAFT202012


@dataclass(frozen=True, slots=True)
class Dialect:
    """One draft.

    `ref_alone`: the keywords beside a `$ref` are ignored. `prefix_items`: arrays have `prefixItems` and `items`, not a list
    of `items` and `additionalItems`. `boolean_limits`: `exclusiveMaximum` says how to read `maximum`.
    """

    name: str
    validator: type[Validator]
    specification: Specification[Any]
    ref_alone: bool = False
    prefix_items: bool = False
    boolean_limits: bool = False


DEFAULT = Dialect("draft 7", jsonschema.Draft7Validator, DRAFT7, ref_alone=True)
_DIALECTS = {
    "http://json-schema.org/draft-04/schema": Dialect(
        "draft 4", jsonschema.Draft4Validator, DRAFT4, ref_alone=True, boolean_limits=True
    ),
    "http://json-schema.org/draft-06/schema": Dialect("draft 6", jsonschema.Draft6Validator, DRAFT6, ref_alone=True),
    "http://json-schema.org/draft-07/schema": DEFAULT,
    "https://json-schema.org/draft/2019-09/schema": Dialect("2019-09", jsonschema.Draft201909Validator, DRAFT201909),
    "https://json-schema.org/draft/2020-12/schema": Dialect(
        "2020-12", jsonschema.Draft202012Validator, DRAFT202012, prefix_items=True
    ),
}


def dialect_of(schema: object) -> Dialect:
    """The draft that `$schema` names. Draft 7 without one, or with one that is not known, as Confluent's registry takes it."""
    named = schema.get("$schema") if isinstance(schema, dict) else None
    if not isinstance(named, str):
        return DEFAULT
    found = named.rstrip("#").rstrip("/")
    return (
        _DIALECTS.get(found)
        or _DIALECTS.get(found.replace("https://json-schema.org/draft-", "http://json-schema.org/draft-"))
        or DEFAULT
    )
