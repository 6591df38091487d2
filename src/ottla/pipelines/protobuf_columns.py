"""Rows of Protobuf messages, with protobuf's own library.

A reader's message takes the fields of a writer's by number, so that a value is parsed by the reader's class. The message
indexes of a value say which message of its own schema it is; the reader's is the message of that name.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from google.protobuf.descriptor import Descriptor, FieldDescriptor

from ottla.client.schema_values import message_class
from ottla.pipelines.failure import PipelineError, Place
from ottla.schemas.framing import NotFramed, read_indexes
from ottla.schemas.model import ParsedSchema
from ottla.schemas.protobuf.protobuf_schema import ProtobufSchema

_PLAIN = {
    FieldDescriptor.TYPE_DOUBLE: "double",
    FieldDescriptor.TYPE_FLOAT: "float",
    FieldDescriptor.TYPE_BOOL: "boolean",
    FieldDescriptor.TYPE_STRING: "string",
    FieldDescriptor.TYPE_ENUM: "string",
    FieldDescriptor.TYPE_BYTES: "binary",
    FieldDescriptor.TYPE_INT32: "int",
    FieldDescriptor.TYPE_SINT32: "int",
    FieldDescriptor.TYPE_SFIXED32: "int",
    FieldDescriptor.TYPE_UINT32: "bigint",
    FieldDescriptor.TYPE_FIXED32: "bigint",
    FieldDescriptor.TYPE_INT64: "bigint",
    FieldDescriptor.TYPE_SINT64: "bigint",
    FieldDescriptor.TYPE_SFIXED64: "bigint",
    FieldDescriptor.TYPE_UINT64: "decimal(20,0)",
    FieldDescriptor.TYPE_FIXED64: "decimal(20,0)",
}
_TIMESTAMP = "google.protobuf.Timestamp"


def ddl_of(parsed: ParsedSchema, place: Place) -> str:
    """The columns of the schema's first message."""
    message = message_class(parsed, (0,)).DESCRIPTOR
    return ", ".join(f"`{field.name}` {_type(field, (message.full_name,), place)}" for field in message.fields)


def _type(field: FieldDescriptor, within: tuple[str, ...], place: Place) -> str:
    if _is_map(field):
        key, value = field.message_type.fields
        return f"map<{_type(key, within, place)}, {_type(value, within, place)}>"
    one = _single(field, within, place)
    return f"array<{one}>" if field.is_repeated else one


def _single(field: FieldDescriptor, within: tuple[str, ...], place: Place) -> str:
    message = field.message_type
    if message is None:
        return _PLAIN[field.type]
    if message.full_name == _TIMESTAMP:
        return "timestamp"
    if _is_wrapper(message):
        return _PLAIN[message.fields[0].type]
    if message.full_name in within:
        raise PipelineError(f"message {message.full_name} contains itself, which no Spark type does", place)
    inner = ", ".join(f"`{each.name}`: {_type(each, (*within, message.full_name), place)}" for each in message.fields)
    if not inner:
        raise PipelineError(f"message {message.full_name} has no fields, and a Spark struct needs one", place)
    return f"struct<{inner}>"


def _is_map(field: FieldDescriptor) -> bool:
    return field.message_type is not None and bool(field.message_type.GetOptions().map_entry)


def _is_wrapper(message: Descriptor) -> bool:
    """A message such as google.protobuf.Int64Value: a value that may be absent."""
    return bool(message.file.name == "google/protobuf/wrappers.proto")


def decoder(writer: ParsedSchema, reader: ParsedSchema, prefix_bytes: int) -> Callable[[list[bytes]], list[dict[str, Any] | str]]:
    """Reads values of the writer's schema as rows of the reader's first message. So many bytes of a value name its schema."""
    assert isinstance(writer, ProtobufSchema), writer
    wanted = reader.name
    message = message_class(reader, (0,))
    row = _reader(message.DESCRIPTOR)

    def decode(value: bytes) -> dict[str, Any] | str:
        try:
            indexes, start = read_indexes(value, prefix_bytes)
        except NotFramed as error:
            return f"no Protobuf value of a schema registry: {error}"
        name = writer.message_name(indexes)
        if name != wanted:
            return f"the value is a {name or 'message that its schema does not have'}, not a {wanted}"
        try:
            return row(message.FromString(value[start:]))
        except Exception as error:
            return f"not Protobuf of its schema: {type(error).__name__}"

    return lambda values: list(map(decode, values))


def _reader(message: Descriptor) -> Callable[[Any], dict[str, Any]]:
    """A function that makes a row of a message of this type."""
    fields = [(field.name, field.has_presence, _value_reader(field)) for field in message.fields]

    def read(found: Any) -> dict[str, Any]:
        return {
            name: None if presence and not found.HasField(name) else convert(getattr(found, name))
            for name, presence, convert in fields
        }

    return read


def _same(value: Any) -> Any:
    return value


def _value_reader(field: FieldDescriptor) -> Callable[[Any], Any]:
    if _is_map(field):
        one = _single_reader(field.message_type.fields[1])
        return lambda entries: [(key, one(value)) for key, value in entries.items()]
    one = _single_reader(field)
    if field.is_repeated:
        return list if one is _same else lambda values: [one(value) for value in values]
    return one


def _single_reader(field: FieldDescriptor) -> Callable[[Any], Any]:
    message = field.message_type
    if message is not None:
        if message.full_name == _TIMESTAMP:
            return lambda value: value.seconds * 1_000_000 + value.nanos // 1000
        if _is_wrapper(message):
            return lambda value: value.value
        return _reader(message)
    if field.enum_type is not None:
        names = {number: value.name for number, value in field.enum_type.values_by_number.items()}
        return lambda number: names.get(number, str(number))
    if _PLAIN[field.type].startswith("decimal"):
        from decimal import Decimal

        return Decimal
    return _same


def encoder(parsed: ParsedSchema, prefix: bytes) -> Callable[[dict[str, Any]], bytes]:
    """Makes bytes of a row for the schema's first message, after a prefix."""
    made = message_class(parsed, (0,))

    def encode(row: dict[str, Any]) -> bytes:
        message = made()
        _fill(message, row)
        return prefix + bytes(message.SerializeToString())

    return encode


def _fill(message: Any, row: dict[str, Any]) -> None:
    for field in message.DESCRIPTOR.fields:
        value = row.get(field.name)
        if value is None:
            continue
        if _is_map(field):
            entries = value.items() if isinstance(value, dict) else value
            target, inner = getattr(message, field.name), field.message_type.fields[1]
            for key, each in entries:
                if inner.message_type is None:
                    target[key] = _plain(inner, each)
                else:
                    _set(target[key], inner, each)
        elif field.is_repeated:
            target = getattr(message, field.name)
            for each in value:
                if field.message_type is None:
                    target.append(_plain(field, each))
                else:
                    _set(target.add(), field, each)
        elif field.message_type is None:
            setattr(message, field.name, _plain(field, value))
        else:
            inner_message = getattr(message, field.name)
            inner_message.SetInParent()
            _set(inner_message, field, value)


def _set(message: Any, field: FieldDescriptor, value: Any) -> None:
    if field.message_type.full_name == _TIMESTAMP:
        message.FromDatetime(value)
    elif _is_wrapper(field.message_type):
        message.value = _plain(field.message_type.fields[0], value)
    else:
        _fill(message, value)


def _plain(field: FieldDescriptor, value: Any) -> Any:
    if field.enum_type is not None and isinstance(value, str):
        known = field.enum_type.values_by_name.get(value)
        return known.number if known is not None else int(value)
    return int(value) if _PLAIN[field.type].startswith("decimal") else value
