"""A request as an endpoint sees it: decoded names, checked parameters, a JSON body."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import unquote_to_bytes

from starlette.requests import Request

from ottla.registry import errors, subjects
from ottla.registry.errors import RegistryError
from ottla.registry.log_format import read_references
from ottla.registry.metadata import canonical_metadata, canonical_rules, trouble_of_metadata, trouble_of_rules
from ottla.registry.service import Registry, SchemaRequest
from ottla.schemas.model import AVRO, SCHEMA_TYPES

BODY_BYTES_MAX: Final = 1 << 20
_VERSION_MAX: Final = 0x7FFFFFFF
_UNKNOWN_PROPERTIES: Final = "confluent-accept-unknown-properties"


def not_found() -> RegistryError:
    return RegistryError(404, "HTTP 404 Not Found")


def checked(name: str, value: Any) -> Any:
    """A field of a request: metadata and rules in their one form. RegistryError if they cannot be."""
    if not isinstance(value, dict):
        return value
    is_metadata = name.lower().endswith("metadata")
    trouble = trouble_of_metadata(value) if is_metadata else trouble_of_rules(value)
    if trouble is not None:
        raise RegistryError(400, trouble) if is_metadata else errors.invalid_rules(trouble)
    return canonical_metadata(value) if is_metadata else canonical_rules(value)


def decoded(segment: bytes) -> str:
    """A segment of a path, decoded after the path was cut (SR03)."""
    try:
        return unquote_to_bytes(segment).decode()
    except UnicodeDecodeError:
        raise RegistryError(400, "The path is not UTF-8") from None


@dataclass(frozen=True, slots=True)
class Call:
    registry: Registry
    request: Request
    segments: Mapping[str, str]
    """The variable parts of the path."""
    context: str | None
    """Of /contexts/C/…"""
    may_read: Callable[[str], bool]
    """Whether the client may see a subject."""
    body: bytes = b""

    # Names

    @property
    def subject(self) -> str:
        given = subjects.within(self.context, self.segments["subject"])
        alias = (self.registry.state.config(given) or {}).get("alias") if given else None
        return subjects.referenced(given, alias) if isinstance(alias, str) and alias else given

    @property
    def scope(self) -> str | None:
        """What a config or mode is of: a subject, a context, or everything."""
        name = self.segments.get("subject", "")
        if not name and self.context in (None, subjects.DEFAULT_CONTEXT):
            return None
        return subjects.within(self.context, name) or None

    @property
    def version(self) -> int:
        """A version of the path; -1 is the latest."""
        text = self.segments["version"].strip()
        if text.lower() == "latest":
            return -1
        try:
            version = int(text)
        except ValueError:
            raise errors.invalid_version(self.segments["version"]) from None
        if not (version == -1 or 1 <= version <= _VERSION_MAX):
            raise errors.invalid_version(text)
        return version

    @property
    def schema_id(self) -> int:
        text = self.segments["id"]
        digits = text.removeprefix("-")
        if not digits.isascii() or not digits.isdecimal() or int(digits) > _VERSION_MAX:
            raise not_found()
        return int(text)

    # Parameters

    def text(self, name: str) -> str | None:
        return self.request.query_params.get(name)

    def flag(self, name: str) -> bool:
        return (self.text(name) or "").strip().lower() == "true"

    def number(self, name: str, default: int) -> int:
        text = self.text(name)
        if text is None:
            return default
        try:
            return int(text)
        except ValueError:
            raise not_found() from None

    def page(self, items: list[Any]) -> list[Any]:
        """The part of a list that offset and limit ask for."""
        start, limit = max(self.number("offset", 0), 0), self.number("limit", -1)
        return items[start : start + limit] if limit > 0 else items[start:]

    @property
    def is_extended(self) -> bool:
        """Whether the client takes fields that older clients do not know."""
        return self.request.headers.get(_UNKNOWN_PROPERTIES, "").lower() == "true"

    # Body

    def document(self) -> dict[str, Any]:
        if not self.body.strip():
            raise RegistryError(422, "The request has no body")
        try:
            document = json.loads(self.body)
            json.dumps(document, ensure_ascii=False).encode()
        except RecursionError:
            raise RegistryError(400, "The body nests too deep") from None
        except ValueError as error:
            # Also a lone surrogate, which is no text that could be stored.
            raise RegistryError(400, f"The body is not JSON: {error}") from None
        if not isinstance(document, dict):
            raise RegistryError(400, "The body is not a JSON object")
        return document

    def schema_request(self) -> SchemaRequest:
        document = self.document()
        text, schema_type = document.get("schema"), document.get("schemaType")
        references = read_references(document.get("references"))
        if text is not None and not isinstance(text, str):
            raise RegistryError(400, "schema is not text: give the schema as a JSON string")
        if schema_type is not None and not isinstance(schema_type, str):
            raise RegistryError(400, "schemaType is not text")
        if references is None:
            raise RegistryError(400, "references are objects with name, subject and version")
        schema_type = AVRO if schema_type is None else schema_type
        if schema_type not in SCHEMA_TYPES:
            raise errors.invalid_schema(f"Invalid schema type {schema_type}: it is one of {', '.join(SCHEMA_TYPES)}")
        for each in references:
            # The schema shows the text of what it refers to, in the format `resolved`.
            if not self.may_read(subjects.referenced(self.subject, each.subject)):
                raise errors.reference_not_found(each.subject, each.version)
        return SchemaRequest(
            schema_type,
            text or "",
            references,
            self._object(document, "metadata"),
            self._object(document, "ruleSet"),
            self._int(document, "id", -1),
            self._int(document, "version", 0),
        )

    @staticmethod
    def _int(document: Mapping[str, Any], name: str, default: int) -> int:
        value = document.get(name)
        if value is None:
            return default
        if not isinstance(value, int) or isinstance(value, bool) or not -1 <= value <= _VERSION_MAX:
            raise RegistryError(400, f"{name} is not a number")
        return value

    @staticmethod
    def _object(document: Mapping[str, Any], name: str) -> dict[str, Any] | None:
        value = document.get(name)
        if value is not None and not isinstance(value, dict):
            raise RegistryError(400, f"{name} is not an object")
        found: dict[str, Any] | None = checked(name, value)
        return found
