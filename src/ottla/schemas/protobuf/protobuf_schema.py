"""A Protobuf schema as the registry handles it."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Sequence

from google.protobuf import descriptor_pb2 as pb
from google.protobuf.message import DecodeError

from ottla.schemas.limits import require_depth
from ottla.schemas.model import PROTOBUF, Incompatibility, InvalidSchema, ParsedSchema, Reference, ResolvedReference
from ottla.schemas.protobuf.compatibility import Comparison
from ottla.schemas.protobuf.linking import Linked
from ottla.schemas.protobuf.parser import parse_text
from ottla.schemas.protobuf.printer import printed

FILE_NAME = "default.proto"
_BASE64 = re.compile(r"[A-Za-z0-9+/\s]+=*\s*")


class ProtobufSchema(ParsedSchema):
    schema_type = PROTOBUF

    def __init__(self, file: pb.FileDescriptorProto, linked: Linked, canonical: str, references: tuple[Reference, ...]) -> None:
        super().__init__(references)
        self._file = file
        self.linked = linked
        self._canonical = canonical

    @classmethod
    def parse(cls, text: str, references: Sequence[ResolvedReference]) -> ProtobufSchema:
        imports: dict[str, pb.FileDescriptorProto] = {}
        for each in references:
            try:
                imports[each.name], _ = _file(each.text, each.name)
            except InvalidSchema as error:
                where = f"reference {each.name} ({each.subject} version {each.version})"
                raise InvalidSchema(str(error), where) from None
        file, compiled = _file(text, FILE_NAME)
        linked = Linked(file, imports)
        if compiled:
            linked.uninterpret(file)
            linked = Linked(file, imports)
        direct = tuple(Reference(each.name, each.subject, each.version) for each in references if each.direct)
        return cls(file, linked, printed(file), direct)

    @property
    def canonical(self) -> str:
        return self._canonical

    @property
    def name(self) -> str | None:
        if not self._file.message_type:
            return None
        return f"{self._file.package}.{self._file.message_type[0].name}".removeprefix(".")

    def message_name(self, indexes: Sequence[int]) -> str | None:
        """The full name of the message at these indexes, which lead from the file into nested messages; maps do not count."""
        messages, name = list(self._file.message_type), str(self._file.package)
        for index in indexes:
            if index >= len(messages):
                return None
            name = f"{name}.{messages[index].name}".removeprefix(".")
            messages = [each for each in messages[index].nested_type if not each.options.map_entry]
        return name

    def normalized(self) -> ProtobufSchema:
        """Type names in full and everything without an order in order."""
        file = pb.FileDescriptorProto()
        file.CopyFrom(self.linked.files[FILE_NAME])
        file.syntax = self._file.syntax
        references = tuple(sorted(set(self.references), key=lambda each: each.name))
        return ProtobufSchema(file, self.linked, printed(file, ordered=True), references)

    def formatted(self, format: str) -> str:
        if format == "serialized":
            return base64.b64encode(self.linked.files[FILE_NAME].SerializeToString(deterministic=True)).decode()
        return self._canonical

    @property
    def fields(self) -> tuple[str, ...]:
        return tuple(each.name for each in self._file.message_type[0].field) if self._file.message_type else ()

    def incompatibilities(self, writer: ParsedSchema, *, lenient: bool = False) -> list[Incompatibility]:
        assert isinstance(writer, ProtobufSchema), writer
        return Comparison(self.linked, writer.linked, FILE_NAME).compare()


def _file(text: str, name: str) -> tuple[pb.FileDescriptorProto, bool]:
    """The file of a text or of a descriptor in base64, and whether it was compiled."""
    if _BASE64.fullmatch(text) and not text.isspace():
        try:
            file = pb.FileDescriptorProto.FromString(base64.b64decode("".join(text.split()), validate=True))
        except (binascii.Error, DecodeError, ValueError):
            pass
        else:
            if file.ByteSize():
                file.name = name
                file.ClearField("source_code_info")
                _require_shallow(file.message_type, 1)
                return file, True
    return parse_text(text, name), False


def _require_shallow(messages: Sequence[pb.DescriptorProto], depth: int) -> None:
    require_depth(depth, "")
    for each in messages:
        _require_shallow(each.nested_type, depth + 1)
