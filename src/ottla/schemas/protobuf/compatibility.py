"""Whether data of a writer's Protobuf schema is read with the reader's (PB01-PB04).

Fields are compared by number in the whole message, so that a move into a oneof or out of one hides no other change.
"""

from __future__ import annotations

from typing import Any, TypeAlias

from google.protobuf import descriptor_pb2 as pb

from ottla.schemas.model import Incompatibility
from ottla.schemas.protobuf.linking import Linked

_Field = pb.FieldDescriptorProto
_KINDS = {
    "number": (
        _Field.TYPE_INT32, _Field.TYPE_INT64, _Field.TYPE_UINT32, _Field.TYPE_UINT64, _Field.TYPE_BOOL, _Field.TYPE_ENUM,
    ),
    "zigzag number": (_Field.TYPE_SINT32, _Field.TYPE_SINT64),
    "string or bytes": (_Field.TYPE_STRING, _Field.TYPE_BYTES),
    "fixed32": (_Field.TYPE_FIXED32, _Field.TYPE_SFIXED32),
    "fixed64": (_Field.TYPE_FIXED64, _Field.TYPE_SFIXED64),
    "float": (_Field.TYPE_FLOAT,),
    "double": (_Field.TYPE_DOUBLE,),
    "message": (_Field.TYPE_MESSAGE,),
    "group": (_Field.TYPE_GROUP,),
}  # fmt: skip
_KIND_OF = {each: kind for kind, types in _KINDS.items() for each in types}
"""PB03: types of one kind have the same bytes, or bytes that are read as each other."""

Found: TypeAlias = "list[Incompatibility]"


class _Types:
    """The messages of a schema and its imports, by full name."""

    def __init__(self, linked: Linked) -> None:
        self.messages: dict[str, tuple[pb.DescriptorProto, str]] = {}
        for file in linked.files.values():
            for message in file.message_type:
                self._add(message, file.package, file.package)

    def _add(self, message: pb.DescriptorProto, within: str, package: str) -> None:
        full = f"{within}.{message.name}".removeprefix(".")
        self.messages[full] = (message, package)
        for each in message.nested_type:
            self._add(each, full, package)

    def find(self, name: str) -> tuple[pb.DescriptorProto, str] | None:
        """The message of a full name with a dot in front, and its name without the package."""
        full = name.removeprefix(".")
        if full not in self.messages:
            return None
        message, package = self.messages[full]
        return message, full.removeprefix(f"{package}.") if package else full

    def entry(self, field: Any) -> pb.DescriptorProto | None:
        """The entry of a map field."""
        found = self.find(field.type_name) if field.type == _Field.TYPE_MESSAGE else None
        return found[0] if found is not None and found[0].options.map_entry else None


class Comparison:
    """One comparison of two schemas."""

    def __init__(self, reader: Linked, writer: Linked, name: str) -> None:
        self._reader, self._writer = _Types(reader), _Types(writer)
        self._files = reader.files[name], writer.files[name]
        self._met: set[tuple[int, int]] = set()

    def compare(self) -> Found:
        reader, writer = self._files
        found: Found = []
        if reader.package != writer.package:
            message = f"the package is {reader.package or 'empty'}, the writer's is {writer.package or 'empty'}"
            found.append(Incompatibility(reader.package, "PACKAGE_CHANGED", message, "keep the package"))
        return found + self._types(reader.message_type, writer.message_type, "", writer.package)

    def _types(self, readers: Any, writers: Any, path: str, within: str) -> Found:
        found: Found = []
        by_name = {each.name: each for each in readers}
        for old in writers:
            if old.options.map_entry:
                continue
            full = f"{within}.{old.name}".removeprefix(".")
            where = f"{path}.{old.name}".removeprefix(".")
            new = by_name.get(old.name)
            if new is None and full in self._reader.messages:
                new = self._reader.messages[full][0]  # PB04: it moved to an import
            if new is None:
                message = f"message {where} is gone"
                found.append(Incompatibility(where, "MESSAGE_REMOVED", message, "keep the message, or import one of that name"))
            else:
                found += self._message(new, old, where, full)
        return found

    def _message(self, reader: pb.DescriptorProto, writer: pb.DescriptorProto, path: str, full: str) -> Found:
        pair = (id(reader), id(writer))
        if pair in self._met:
            return []
        self._met.add(pair)
        return (
            self._oneofs(reader, writer, path)
            + self._fields(reader, writer, path)
            + self._types(reader.nested_type, writer.nested_type, path, full)
        )

    @staticmethod
    def _members(message: pb.DescriptorProto) -> dict[int, str]:
        """The oneof of each field that is in one."""
        return {
            each.number: message.oneof_decl[each.oneof_index].name
            for each in message.field
            if each.HasField("oneof_index") and not each.proto3_optional
        }

    def _oneofs(self, reader: pb.DescriptorProto, writer: pb.DescriptorProto, path: str) -> Found:
        """PB02: fields that could be set together may not exclude each other."""
        found: Found = []
        new, old = self._members(reader), self._members(writer)
        known = {each.number for each in writer.field}
        for name in dict.fromkeys(new.values()):
            members = [number for number, oneof in new.items() if oneof == name and number in known]
            groups = {old.get(number, number) for number in members}
            moved = [number for number in members if number not in old]
            if len(groups) > 1:
                rule = "MULTIPLE_FIELDS_MOVED_TO_ONEOF" if len(moved) > 1 else "FIELD_MOVED_TO_EXISTING_ONEOF"
                message = f"oneof {name} has fields {', '.join(map(str, sorted(members)))}, which the writer may set together"
                found.append(Incompatibility(f"{path}.{name}", rule, message, "move one field only, and into a new oneof"))
        return found

    def _fields(self, reader: pb.DescriptorProto, writer: pb.DescriptorProto, path: str) -> Found:
        found: Found = []
        new = {each.number: each for each in reader.field}
        old = {each.number: each for each in writer.field}
        oneofs = self._members(writer)
        kept = {name for number, name in oneofs.items() if number in new} | set(self._members(reader).values())
        for number in sorted(set(new) | set(old)):
            where = f"{path}.{number}"
            if number not in new:
                found += self._removed(old[number], oneofs.get(number), kept, where)
            elif number not in old:
                if new[number].label == _Field.LABEL_REQUIRED:
                    message = f"field {new[number].name} = {number} is required and new"
                    found.append(Incompatibility(where, "REQUIRED_FIELD_ADDED", message, "make it optional"))
            else:
                found += self._field(new[number], old[number], where)
        return found

    @staticmethod
    def _removed(field: Any, oneof: str | None, kept: set[str], where: str) -> Found:
        if oneof is not None and oneof in kept:
            message = f"field {field.name} = {field.number} is gone from oneof {oneof}"
            return [Incompatibility(where, "ONEOF_FIELD_REMOVED", message, "keep the field, or remove the whole oneof")]
        if field.label == _Field.LABEL_REQUIRED:
            message = f"the required field {field.name} = {field.number} is gone"
            return [Incompatibility(where, "REQUIRED_FIELD_REMOVED", message, "keep the field")]
        return []

    def _field(self, reader: Any, writer: Any, where: str) -> Found:
        named = f"field {reader.name} = {reader.number}"
        entries = self._reader.entry(reader), self._writer.entry(writer)
        if (entries[0] is None) != (entries[1] is None):
            change = "is a map" if entries[0] is not None else "is no map"
            message = f"{named} {change}, the writer's is {'not' if entries[0] is not None else 'one'}"
            return [Incompatibility(where, "FIELD_KIND_CHANGED", message, "use a new number")]
        if entries[0] is not None and entries[1] is not None:
            return [
                each
                for new, old in zip(entries[0].field, entries[1].field, strict=True)
                for each in self._field(new, old, f"{where}.{new.name}")
            ]
        kinds = _KIND_OF[reader.type], _KIND_OF[writer.type]
        if kinds[0] != kinds[1]:
            scalar = {"message", "group"}.isdisjoint(kinds)
            message = f"{named} is a {kinds[0]}, the writer's is a {kinds[1]}"
            rule = "FIELD_SCALAR_KIND_CHANGED" if scalar else "FIELD_KIND_CHANGED"
            return [Incompatibility(where, rule, message, "keep the type, or use a new number")]
        found = self._message_type(reader, writer, where, named) if kinds[0] in ("message", "group") else []
        return found + self._label(reader, writer, where, named, kinds[0])

    @staticmethod
    def _label(reader: Any, writer: Any, where: str, named: str, kind: str) -> Found:
        if reader.label == writer.label:
            return []
        if reader.label == _Field.LABEL_REQUIRED:
            return [
                Incompatibility(where, "REQUIRED_FIELD_ADDED", f"{named} is required, the writer's is not", "make it optional")
            ]
        if kind in ("message", "group", "string or bytes"):
            return []
        message = f"the label of {named} changed, which changes the bytes of numbers"
        return [Incompatibility(where, "FIELD_NUMERIC_LABEL_CHANGED", message, "keep the label, or use a new number")]

    def _message_type(self, reader: Any, writer: Any, where: str, named: str) -> Found:
        new, old = self._reader.find(reader.type_name), self._writer.find(writer.type_name)
        if new is None or old is None or new[1] != old[1]:
            message = f"{named} is of type {reader.type_name.lstrip('.')}, the writer's of {writer.type_name.lstrip('.')}"
            return [Incompatibility(where, "FIELD_NAMED_TYPE_CHANGED", message, "keep the type, or use a new number")]
        return self._message(new[0], old[0], new[1], writer.type_name.removeprefix("."))
