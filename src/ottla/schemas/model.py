"""The words of the schema core: references, a parsed schema, what is wrong with one, and why two do not fit.

Owns no format: `avro`, `json_schema` and `protobuf` implement `ParsedSchema`, `parsing` chooses among them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

AVRO = "AVRO"
JSON = "JSON"
PROTOBUF = "PROTOBUF"
SCHEMA_TYPES = (JSON, PROTOBUF, AVRO)


class InvalidSchema(ValueError):
    """The text is no schema of its type. `path` is where, as a JSON pointer, a dotted name or `line 3`; it may be empty."""

    def __init__(self, reason: str, path: str = "") -> None:
        super().__init__(f"{path}: {reason}" if path else reason)
        self.reason = reason
        self.path = path

    def __reduce__(self) -> tuple[type[InvalidSchema], tuple[str, str]]:
        return type(self), (self.reason, self.path)


@dataclass(frozen=True, slots=True)
class Reference:
    """Another schema that a schema uses. The name is an Avro full name, a JSON `$ref` or a proto import path."""

    name: str
    subject: str
    version: int


@dataclass(frozen=True, slots=True)
class ResolvedReference:
    """A referenced schema with its text.

    `parse` takes all of them, the references of references too, each once and before those that use it. `direct` is true
    for those that the schema itself lists.
    """

    name: str
    subject: str
    version: int
    text: str
    direct: bool = True


@dataclass(frozen=True, slots=True)
class Incompatibility:
    """One reason why data of the writer's schema cannot be read with the reader's.

    `path` is a JSON pointer into the reader's schema (Avro, JSON) or a dotted name (Protobuf). `rule` is the name of the
    rule in Kafka's ecosystem, such as READER_FIELD_MISSING_DEFAULT_VALUE. `remedy` says what to change.
    """

    path: str
    rule: str
    message: str
    remedy: str


class ParsedSchema(ABC):
    """A valid schema of one type. Instances do not change."""

    schema_type: str

    def __init__(self, references: tuple[Reference, ...]) -> None:
        self.references = references

    @property
    @abstractmethod
    def canonical(self) -> str:
        """The text that is stored, compared and printed (SR05)."""

    @property
    @abstractmethod
    def name(self) -> str | None:
        """The full name of the record or of the first message, or the title; None without one."""

    @abstractmethod
    def normalized(self) -> ParsedSchema:
        """The same schema with everything whose order means nothing in one order."""

    @property
    @abstractmethod
    def fields(self) -> tuple[str, ...]:
        """The names of the fields of the record, of the first message, or of the object."""

    @abstractmethod
    def incompatibilities(self, writer: ParsedSchema, *, lenient: bool = False) -> list[Incompatibility]:
        """Why this schema cannot read data of `writer`, which has the same type. Empty if it can.

        `lenient`: by Confluent's policy of that name, which only JSON Schema has.
        """

    def formatted(self, format: str) -> str:
        """The text in the `format` of a request: `""` is the canonical text, as is a format unknown to the type.

        Avro has `resolved`, with the referenced types inlined; Protobuf has `serialized`, a FileDescriptorProto in base64.
        """
        return self.canonical

    def same_as(self, other: ParsedSchema) -> bool:
        """Whether both would be stored as the same schema: type, canonical text and references."""
        mine = (self.schema_type, self.canonical, frozenset(self.references))
        return mine == (other.schema_type, other.canonical, frozenset(other.references))
