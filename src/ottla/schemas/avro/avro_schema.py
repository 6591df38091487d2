"""An Avro schema as the registry handles it."""

from __future__ import annotations

from collections.abc import Sequence

from ottla.schemas.avro.compatibility import Comparison
from ottla.schemas.avro.nodes import Node, Record, kind_or_name
from ottla.schemas.avro.parser import Parser
from ottla.schemas.avro.printer import normalized, printed
from ottla.schemas.json_text import dumps, loads
from ottla.schemas.model import AVRO, Incompatibility, InvalidSchema, ParsedSchema, Reference, ResolvedReference


class AvroSchema(ParsedSchema):
    schema_type = AVRO

    def __init__(self, root: Node, known: frozenset[str], references: tuple[Reference, ...]) -> None:
        super().__init__(references)
        self.root = root
        self._known = known
        self._canonical = dumps(printed(root, known))

    @classmethod
    def parse(cls, text: str, references: Sequence[ResolvedReference], *, lenient: bool = False) -> AvroSchema:
        parser = Parser(lenient=lenient)
        known: set[str] = set()
        for each in references:
            try:
                known.add(kind_or_name(parser.parse(loads(each.text, comments=True))))
            except InvalidSchema as error:
                where = f"reference {each.name} ({each.subject} version {each.version})"
                raise InvalidSchema(str(error), where) from None
        root = parser.parse(loads(text, comments=True))
        direct = tuple(Reference(each.name, each.subject, each.version) for each in references if each.direct)
        return cls(root, frozenset(known), direct)

    @property
    def canonical(self) -> str:
        return self._canonical

    @property
    def name(self) -> str | None:
        return self.root.name.full if isinstance(self.root, Record) else None

    def normalized(self) -> AvroSchema:
        return AvroSchema(normalized(self.root), self._known, tuple(sorted(set(self.references), key=lambda each: each.name)))

    def formatted(self, format: str) -> str:
        return dumps(printed(self.root)) if format == "resolved" else self._canonical

    @property
    def fields(self) -> tuple[str, ...]:
        return tuple(each.name for each in self.root.fields) if isinstance(self.root, Record) else ()

    def incompatibilities(self, writer: ParsedSchema, *, lenient: bool = False) -> list[Incompatibility]:
        assert isinstance(writer, AvroSchema), writer
        return Comparison().compare(self.root, writer.root)
