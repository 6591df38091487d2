"""Resolves the names of a file with those of its imports, by protobuf's own library."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from google.protobuf import descriptor_pb2 as pb
from google.protobuf import descriptor_pool, message_factory

from ottla.schemas.limits import NESTING_MAX, require_depth
from ottla.schemas.model import InvalidSchema
from ottla.schemas.protobuf.builtin import builtin
from ottla.schemas.protobuf.options import uninterpreted


class Linked:
    """A file and all that it imports, with full names."""

    def __init__(self, file: pb.FileDescriptorProto, imports: Mapping[str, pb.FileDescriptorProto]) -> None:
        self.pool = descriptor_pool.DescriptorPool()
        self.files: dict[str, pb.FileDescriptorProto] = {}
        self._imports = imports
        self._add(file, ())

    def _add(self, file: pb.FileDescriptorProto, within: tuple[str, ...]) -> None:
        if file.name in self.files:
            return
        if file.name in within:
            raise InvalidSchema(f"the imports go round: {' -> '.join([*within, file.name])}")
        require_depth(len(within), f"import {file.name}" if len(within) > NESTING_MAX else "")
        for path in file.dependency:
            found = self._imports.get(path) or builtin(path)
            if found is None:
                raise InvalidSchema(f'import "{path}" is neither a reference of the schema nor built in')
            self._add(found, (*within, file.name))
        try:
            self.pool.Add(file)
            linked = pb.FileDescriptorProto()
            self.pool.FindFileByName(file.name).CopyToProto(linked)
        except (TypeError, KeyError, ValueError) as error:
            reason = str(error.args[0] if error.args else error)
            raise InvalidSchema(reason.removeprefix("Couldn't build proto file into descriptor pool: ")) from None
        self.files[file.name] = linked

    def uninterpret(self, file: pb.FileDescriptorProto) -> None:
        """Write the custom options of a compiled file as a text would have them."""
        for options in _all_options(file):
            if options.ByteSize():
                try:
                    known = self.pool.FindMessageTypeByName(options.DESCRIPTOR.full_name)
                except KeyError:
                    continue
                uninterpreted(options, message_factory.GetMessageClass(known).FromString(options.SerializeToString()))


def _all_options(message: Any) -> Iterator[Any]:
    for field, value in message.ListFields():
        if field.name == "options":
            yield value
        elif field.message_type is not None and field.name != "source_code_info":
            for each in value if field.is_repeated else [value]:
                yield from _all_options(each)
