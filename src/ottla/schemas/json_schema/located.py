"""A schema within its document, with what its references mean there."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from ottla.schemas.json_schema.dialects import Dialect, dialect_of

if TYPE_CHECKING:
    from referencing._core import Resolver

Schema: TypeAlias = "dict[str, Any] | bool"

LISTS = ("allOf", "anyOf", "oneOf", "prefixItems")
ALONE = (
    "additionalItems", "additionalProperties", "contains", "else", "if", "items", "not", "propertyNames", "then",
    "unevaluatedItems", "unevaluatedProperties", "contentSchema",
)  # fmt: skip
NAMED = ("$defs", "definitions", "dependencies", "dependentSchemas", "patternProperties", "properties")
REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")


@dataclass(frozen=True, slots=True, eq=False)
class Located:
    """A schema, the resolver of its references, and its draft. Two are the same if their values are one object."""

    value: Schema
    resolver: Resolver[Any]
    dialect: Dialect

    @property
    def key(self) -> object:
        return self.value if isinstance(self.value, bool) else id(self.value)

    def get(self, keyword: str) -> Any:
        return None if isinstance(self.value, bool) else self.value.get(keyword)

    def within(self, value: Schema) -> Located:
        """A schema inside this one."""
        if isinstance(value, bool) or not any(name in value for name in ("$id", "id", "$schema")):
            return Located(value, self.resolver, self.dialect)
        resource = self.dialect.specification.create_resource(value)
        dialect = dialect_of(value) if "$schema" in value else self.dialect
        return Located(value, self.resolver.in_subresource(resource), dialect)

    def child(self, keyword: str) -> Located | None:
        """The schema that is the value of a keyword."""
        value = self.get(keyword)
        return self.within(value) if isinstance(value, dict | bool) else None

    def list(self, keyword: str) -> list[Located]:
        value = self.get(keyword)
        return [self.within(each) for each in value] if isinstance(value, list) else []

    def named(self, keyword: str) -> dict[str, Located]:
        value = self.get(keyword)
        if not isinstance(value, dict):
            return {}
        return {name: self.within(each) for name, each in value.items() if isinstance(each, dict | bool)}

    def referred(self) -> Iterator[Located]:
        """What the references in this schema, not inside its parts, refer to."""
        for keyword in REFERENCES:
            reference = self.get(keyword)
            if isinstance(reference, str):
                found = self.resolver.lookup(reference)
                yield Located(
                    found.contents, found.resolver, dialect_of(found.contents) if _names_draft(found.contents) else self.dialect
                )

    @property
    def is_reference_alone(self) -> bool:
        return self.dialect.ref_alone and isinstance(self.get("$ref"), str)

    def parts(self) -> Iterator[tuple[str, Located]]:
        """The schemas directly inside this one, with their paths."""
        if isinstance(self.value, bool):
            return
        for keyword in LISTS:
            yield from ((f"/{keyword}/{index}", each) for index, each in enumerate(self.list(keyword)))
        if isinstance(self.get("items"), list):
            yield from ((f"/items/{index}", each) for index, each in enumerate(self.list("items")))
        for keyword in ALONE:
            child = self.child(keyword)
            if child is not None:
                yield f"/{keyword}", child
        for keyword in NAMED:
            yield from ((f"/{keyword}/{pointer(name)}", each) for name, each in self.named(keyword).items())


def _names_draft(value: object) -> bool:
    return isinstance(value, dict) and isinstance(value.get("$schema"), str)


def pointer(name: str) -> str:
    """A name as one step of a JSON pointer."""
    return name.replace("~", "~0").replace("/", "~1")
