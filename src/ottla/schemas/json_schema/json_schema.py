"""A JSON Schema as the registry handles it.

A `$ref` finds the schema's own parts, the references it was registered with, and the metaschemas. Nothing else is ever looked up.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from urllib.parse import urljoin

from jsonschema.exceptions import SchemaError, UnknownType, best_match
from jsonschema_specifications import REGISTRY
from referencing import Registry
from referencing.exceptions import Unresolvable

from ottla.schemas.json_schema.compatibility import Comparison
from ottla.schemas.json_schema.dialects import dialect_of
from ottla.schemas.json_schema.located import REFERENCES, Located
from ottla.schemas.json_text import Decimal, Json, dumps, loads, ordered
from ottla.schemas.limits import require_depth
from ottla.schemas.model import JSON, Incompatibility, InvalidSchema, ParsedSchema, Reference, ResolvedReference

_BASE = "mem://input"
# What jsonschema and referencing raise for a schema that breaks its metaschema. Only one that an older registry took can.
_BROKEN = (Unresolvable, UnknownType, ValueError, TypeError, AttributeError, KeyError)


class JsonSchema(ParsedSchema):
    schema_type = JSON

    def __init__(self, value: Json, registry: Registry[Any], references: tuple[Reference, ...]) -> None:
        super().__init__(references)
        self._value = value
        self._registry = registry
        self._canonical = dumps(value)
        assert isinstance(value, dict | bool), value
        dialect = dialect_of(value)
        resource = dialect.specification.create_resource(value)
        base = _base(value)
        self.root = Located(value, registry.with_resource(base, resource).resolver(base), dialect)

    @classmethod
    def parse(cls, text: str, references: Sequence[ResolvedReference], *, lenient: bool = False) -> JsonSchema:
        value = _schema(text, lenient)
        registry: Registry[Any] = REGISTRY
        for each in references:
            try:
                referred = _schema(each.text, lenient)
            except InvalidSchema as error:
                where = f"reference {each.name} ({each.subject} version {each.version})"
                raise InvalidSchema(str(error), where) from None
            resource = dialect_of(referred).specification.create_resource(referred)
            for uri in dict.fromkeys((each.name, urljoin(_base(value), each.name), urljoin(_BASE, each.name), _base(referred))):
                if uri != _BASE:
                    registry = registry.with_resource(uri, resource)
        direct = tuple(Reference(each.name, each.subject, each.version) for each in references if each.direct)
        try:
            schema = cls(value, registry.crawl(), direct)
        except _BROKEN as error:
            raise InvalidSchema(f"its references cannot be followed: {error}") from None
        if not lenient:
            _require_resolvable(schema.root)
        return schema

    @property
    def canonical(self) -> str:
        return self._canonical

    @property
    def name(self) -> str | None:
        title = self.root.get("title")
        return title if isinstance(title, str) else None

    def normalized(self) -> JsonSchema:
        references = tuple(sorted(set(self.references), key=lambda each: each.name))
        return JsonSchema(ordered(self._value), self._registry, references)

    @property
    def fields(self) -> tuple[str, ...]:
        return tuple(self.root.named("properties"))

    def incompatibilities(self, writer: ParsedSchema, *, lenient: bool = False) -> list[Incompatibility]:
        assert isinstance(writer, JsonSchema), writer
        if self.same_as(writer):
            return []
        try:
            return Comparison(lenient=lenient).compare(self.root, writer.root)
        except _BROKEN as error:
            message = f"one of the schemas was registered without a check and cannot be compared: {error}"
            return [Incompatibility("/", "SCHEMA_UNREADABLE", message, "delete that version, or compare with others only")]


def _base(value: object) -> str:
    named = (value.get("$id") or value.get("id")) if isinstance(value, dict) else None
    return urljoin(_BASE, named).rstrip("#") if isinstance(named, str) else _BASE


def _schema(text: str, lenient: bool) -> Json:
    value = loads(text, number=Decimal)
    if not isinstance(value, dict | bool):
        raise InvalidSchema("a JSON Schema is an object, true or false")
    dialect = dialect_of(value)
    if not lenient:
        validator = dialect.validator(dialect.validator.META_SCHEMA)
        try:
            worst = best_match(validator.iter_errors(value))
        except (SchemaError, Unresolvable) as error:
            raise InvalidSchema(f"no schema of {dialect.name}: {error}") from None
        if worst is not None:
            raise InvalidSchema(f"no schema of {dialect.name}: {worst.message}", worst.json_path.removeprefix("$"))
    return value


def _require_resolvable(root: Located) -> None:
    """Refuse references to what is neither in the schema nor among its references."""
    waiting = [("", 0, root)]
    while waiting:
        path, depth, schema = waiting.pop()
        require_depth(depth, path)
        try:
            for _ in schema.referred():
                pass
        except (Unresolvable, ValueError) as error:
            named = next(str(schema.get(each)) for each in REFERENCES if schema.get(each))
            message = f"refers to {named}, which is neither in the schema nor among its references; nothing is fetched"
            raise InvalidSchema(message, path) from error
        waiting += [(path + step, depth + 1, each) for step, each in schema.parts()]
