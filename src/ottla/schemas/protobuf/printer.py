"""Prints a FileDescriptorProto as the one canonical text. Whether it was read from text or compiled makes no difference.

Messages come before enums and fields before oneofs, as Confluent's registry prints them; comments are not kept.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from google.protobuf import descriptor_pb2 as pb
from google.protobuf.message import Message

from ottla.schemas.protobuf.options import printed_options
from ottla.schemas.protobuf.parser import ENUM_MAX, NUMBER_MAX, SCALARS
from ottla.schemas.protobuf.tokens import quoted

_Field = pb.FieldDescriptorProto
_SCALAR_NAMES = {number: name for name, number in SCALARS.items()}
_LABELS = {_Field.LABEL_OPTIONAL: "optional ", _Field.LABEL_REQUIRED: "required ", _Field.LABEL_REPEATED: "repeated "}


def printed(file: pb.FileDescriptorProto, *, ordered: bool = False) -> str:
    """The text of a file. `ordered` sorts what has no order: imports, options, fields, constants, reserved numbers."""
    return _Printer(file, ordered).text()


class _Printer:
    def __init__(self, file: pb.FileDescriptorProto, ordered: bool) -> None:
        self._file = file
        self._ordered = ordered

    def text(self) -> str:
        file = self._file
        out: list[str] = []
        if file.syntax == "editions":
            out.append(f'edition = "{pb.Edition.Name(file.edition).removeprefix("EDITION_")}";\n')
        elif file.syntax and not (self._ordered and file.syntax == "proto2"):
            out.append(f'syntax = "{file.syntax}";\n')
        if file.package:
            out.append(f"package {file.package};\n")
        sections = [
            self._imports(),
            self._options(file.options),
            [*map(self._message, file.message_type), *map(self._enum, file.enum_type)],
            self._extensions(file.extension, file.message_type),
            [self._service(each) for each in file.service],
        ]
        for section in sections:
            if section:
                out += ["\n", *section]
        return "".join(out)

    def _sorted(self, lines: Iterable[str]) -> list[str]:
        return sorted(lines) if self._ordered else list(lines)

    def _imports(self) -> list[str]:
        public, weak = set(self._file.public_dependency), set(self._file.weak_dependency)
        plain = [each for index, each in enumerate(self._file.dependency) if index not in public | weak]
        found = self._sorted(f"import {quoted(each.encode())};\n" for each in plain)
        for kind, indexes in (("public", public), ("weak", weak)):
            found += self._sorted(f"import {kind} {quoted(self._file.dependency[each].encode())};\n" for each in sorted(indexes))
        return found + self._sorted(f"import option {quoted(each.encode())};\n" for each in self._file.option_dependency)

    def _options(self, options: Message, skip: Sequence[str] = ()) -> list[str]:
        return [f"option {name} = {value};\n" for name, value in printed_options(options, self._ordered) if name not in skip]

    def _bracketed(self, options: Message, before: Sequence[str] = ()) -> str:
        found = [*before, *(f"{name} = {value}" for name, value in printed_options(options, self._ordered))]
        return f" [{', '.join(found)}]" if found else ""

    def _message(self, message: pb.DescriptorProto) -> str:
        return f"message {message.name} " + self._body(message)

    def _body(self, message: pb.DescriptorProto) -> str:
        nested = {each.name: each for each in message.nested_type}
        groups = {
            field.type_name.rpartition(".")[2]
            for field in [*message.field, *message.extension]
            if field.type == _Field.TYPE_GROUP
        }
        synthetic = {field.oneof_index for field in message.field if field.proto3_optional}
        fields = sorted(message.field, key=lambda each: each.number) if self._ordered else list(message.field)
        alone = [each for each in fields if not each.HasField("oneof_index") or each.proto3_optional]
        oneofs = []
        for index, oneof in enumerate(message.oneof_decl):
            members = [each for each in fields if each.HasField("oneof_index") and each.oneof_index == index]
            if index not in synthetic:
                inner = [*self._options(oneof.options), *(self._field(each, nested, in_oneof=True) for each in members)]
                oneofs.append((members[0].number if members else 0, f"oneof {oneof.name} {_block([inner])}"))
        if self._ordered:
            oneofs.sort()
        entries = {each.name for each in message.nested_type if each.options.map_entry}
        sections = [
            self._reserved(message.reserved_range, message.reserved_name, NUMBER_MAX, 1),
            self._options(message.options, ["map_entry"]),
            [self._field(each, nested) for each in alone],
            [text for _, text in oneofs],
            [self._extension_range(each) for each in message.extension_range],
            self._extensions(message.extension, message.nested_type),
            [
                *(self._message(each) for each in message.nested_type if each.name not in entries | groups),
                *map(self._enum, message.enum_type),
            ],
        ]
        return _block(sections)

    def _field(self, field: Any, nested: dict[str, pb.DescriptorProto], *, in_oneof: bool = False) -> str:
        label = "" if in_oneof else self._label(field)
        short = field.type_name.rpartition(".")[2]
        if field.type == _Field.TYPE_GROUP and short in nested:
            return f"{label}group {short} = {field.number}{self._bracketed(field.options)} {self._body(nested[short])}"
        entry = nested.get(short)
        if field.label == _Field.LABEL_REPEATED and entry is not None and entry.options.map_entry:
            key, value = entry.field
            kind, label = f"map<{_type(key)}, {_type(value)}>", ""
        else:
            kind = _type(field)
        own = []
        if field.HasField("default_value"):
            own.append(f"default = {_default(field)}")
        if field.json_name and field.json_name != _json_name(field.name):
            own.append(f"json_name = {quoted(field.json_name.encode())}")
        return f"{label}{kind} {field.name} = {field.number}{self._bracketed(field.options, own)};\n"

    def _label(self, field: Any) -> str:
        if self._file.syntax in ("", "proto2") or field.label == _Field.LABEL_REPEATED or field.proto3_optional:
            return _LABELS[field.label]
        return "required " if field.label == _Field.LABEL_REQUIRED else ""

    def _reserved(self, ranges: Iterable[Any], names: Iterable[str], most: int, extra: int) -> list[str]:
        numbers = sorted(ranges, key=lambda each: each.start) if self._ordered else ranges
        found = [f"reserved {_range(each, most, extra)};\n" for each in numbers]
        bare = self._file.syntax == "editions"
        return found + [f"reserved {each if bare else quoted(each.encode())};\n" for each in self._sorted(names)]

    def _extension_range(self, each: Any) -> str:
        return f"extensions {_range(each, NUMBER_MAX, 1)}{self._bracketed(each.options)};\n"

    def _extensions(self, extensions: Iterable[Any], nested: Iterable[pb.DescriptorProto]) -> list[str]:
        groups = {each.name: each for each in nested}
        by_extendee: dict[str, list[str]] = {}
        for each in extensions:
            by_extendee.setdefault(each.extendee, []).append(self._field(each, groups))
        return [f"extend {name} {_block([fields])}" for name, fields in by_extendee.items()]

    def _enum(self, enum: pb.EnumDescriptorProto) -> str:
        values = sorted(enum.value, key=lambda each: (each.number, each.name)) if self._ordered else enum.value
        constants = [f"{each.name} = {each.number}{self._bracketed(each.options)};\n" for each in values]
        reserved = self._reserved(enum.reserved_range, enum.reserved_name, ENUM_MAX, 0)
        return f"enum {enum.name} " + _block([reserved, [*self._options(enum.options), *constants]], gap=False)

    def _service(self, service: pb.ServiceDescriptorProto) -> str:
        methods = []
        for each in service.method:
            given = f"{'stream ' if each.client_streaming else ''}{each.input_type}"
            returned = f"{'stream ' if each.server_streaming else ''}{each.output_type}"
            options = self._options(each.options)
            methods.append(f"rpc {each.name} ({given}) returns ({returned})" + (f" {_block([options])}" if options else ";\n"))
        return f"service {service.name} " + _block([self._options(service.options), methods])


def _block(sections: Sequence[Sequence[str]], *, gap: bool = True) -> str:
    filled = [section for section in sections if section]
    if not filled:
        return "{}\n"
    parts = ["".join(_indented(each) for each in section) for section in filled]
    return "{\n" + ("\n" if gap else "").join(parts) + "}\n"


def _indented(text: str) -> str:
    return "".join(f"  {line}" if line.strip() else line for line in text.splitlines(keepends=True))


def _type(field: Any) -> str:
    return str(field.type_name or _SCALAR_NAMES[field.type])


def _default(field: Any) -> str:
    if field.type == _Field.TYPE_STRING:
        return quoted(field.default_value.encode())
    return f'"{field.default_value}"' if field.type == _Field.TYPE_BYTES else str(field.default_value)


def _range(each: Any, most: int, extra: int) -> str:
    last = each.end - extra
    if last == each.start:
        return str(each.start)
    return f"{each.start} to {'max' if last >= most else last}"


def _json_name(name: str) -> str:
    parts = name.split("_")
    return parts[0] + "".join(part[:1].upper() + part[1:] for part in parts[1:])
