"""Options of a .proto file: those of the language are fields of its option messages, custom ones are kept as written."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from google.protobuf import descriptor_pb2, text_format
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from ottla.schemas.model import InvalidSchema
from ottla.schemas.protobuf.tokens import LOOK_AHEAD, Token, quoted, tokens, unquoted

_INTEGERS = {
    FieldDescriptor.CPPTYPE_INT32,
    FieldDescriptor.CPPTYPE_INT64,
    FieldDescriptor.CPPTYPE_UINT32,
    FieldDescriptor.CPPTYPE_UINT64,
}


def set_option(options: Any, name: list[tuple[str, bool]], value: list[Token]) -> None:
    """Set the option of this name, whose parts are (word, in parentheses), to the value of these tokens."""
    if name[0][1]:
        options.uninterpreted_option.append(_uninterpreted(name, value))
        return
    target = options
    for part, _ in name[:-1]:
        target = getattr(target, _field(target, part, value[0]).name)
    field = _field(target, name[-1][0], value[0])
    if field.message_type is not None:
        text = joined(value[1:-1] if value[0].text == "{" else value)
        try:
            inner = getattr(target, field.name)
            text_format.Parse(text, inner.add() if _repeated(field) else inner)
        except (text_format.ParseError, AttributeError) as error:
            raise InvalidSchema(f"option {name[-1][0]}: {error}", f"line {value[0].line}") from None
        return
    scalar = _scalar(field, value)
    if _repeated(field):
        getattr(target, field.name).append(scalar)
    else:
        setattr(target, field.name, scalar)


def _repeated(field: FieldDescriptor) -> bool:
    return bool(field.is_repeated)


def _field(message: Message, name: str, token: Token) -> FieldDescriptor:
    field = message.DESCRIPTOR.fields_by_name.get(name)
    if field is None or name == "uninterpreted_option":
        kind = message.DESCRIPTOR.name.removesuffix("Options").lower()
        raise InvalidSchema(f"{name} is no option of a {kind}", f"line {token.line}")
    return field


def _scalar(field: FieldDescriptor, value: list[Token]) -> Any:
    token = value[-1]
    negative = value[0].text == "-"
    if field.cpp_type == FieldDescriptor.CPPTYPE_BOOL and token.text in ("true", "false"):
        return token.text == "true"
    if field.cpp_type == FieldDescriptor.CPPTYPE_STRING and token.kind == "string":
        raw = b"".join(map(unquoted, value))
        return raw if field.type == FieldDescriptor.TYPE_BYTES else raw.decode(errors="replace")
    if field.cpp_type == FieldDescriptor.CPPTYPE_ENUM:
        found = field.enum_type.values_by_name.get(token.text)
        if found is not None:
            return found.number
    if field.cpp_type in _INTEGERS and token.kind == "number" and token.text.isdigit():
        return -int(token.text) if negative else int(token.text)
    raise InvalidSchema(f"{token.text} is no value of option {field.name}", f"line {token.line}")


def _uninterpreted(name: list[tuple[str, bool]], value: list[Token]) -> descriptor_pb2.UninterpretedOption:
    option = descriptor_pb2.UninterpretedOption()
    for part, extension in name:
        option.name.add(name_part=part, is_extension=extension)
    last = value[-1]
    if value[0].text in "{[":
        option.aggregate_value = joined(value)
    elif last.kind == "string":
        option.string_value = b"".join(map(unquoted, value))
    elif last.kind == "word":
        option.identifier_value = joined(value)
    elif last.text.lower().startswith("0x") or last.text.isdigit():
        number = int(last.text, 0 if last.text.lower().startswith("0x") else 8 if _octal(last.text) else 10)
        if value[0].text == "-":
            option.negative_int_value = -number
        else:
            option.positive_int_value = number
    else:
        option.double_value = float(last.text) * (-1 if value[0].text == "-" else 1)
    return option


def _octal(text: str) -> bool:
    return len(text) > 1 and text[0] == "0"


def joined(value: list[Token]) -> str:
    """Tokens as one line. Reading it again and joining gives the same line."""
    out = ""
    for index, token in enumerate(value):
        text = quoted(unquoted(token)) if token.kind == "string" else token.text
        before = value[index - 1] if index else None
        tight = before is None or text in ",:.;])>" or before.text in "[(<.-" or (text == "(" and before.kind == "word")
        out += text if tight else " " + text
    return out


def printed_options(options: Message, ordered: bool = False) -> Iterator[tuple[str, str]]:
    """Every option as (name, value): those of the language in the order of their numbers, custom ones as written or by name."""
    for field, value in options.ListFields():
        # An extension is known here only if this process happens to have its module; `uninterpreted` wrote it as an option.
        if field.name != "uninterpreted_option" and not field.is_extension:
            yield from _printed(field, value, field.name)
    custom = [
        (".".join(f"({part.name_part})" if part.is_extension else part.name_part for part in option.name), _printed_value(option))
        for option in getattr(options, "uninterpreted_option", ())
    ]
    yield from sorted(custom) if ordered else custom


def _printed(field: FieldDescriptor, value: Any, name: str) -> Iterator[tuple[str, str]]:
    values = list(value) if _repeated(field) else [value]
    for each in values:
        if field.message_type is None:
            yield name, _printed_scalar(field, each)
        elif _repeated(field):
            text = text_format.MessageToString(each, as_one_line=True)
            yield name, joined(tokens("{" + text + "}")[:-LOOK_AHEAD])
        else:
            for inner, inner_value in each.ListFields():
                yield from _printed(inner, inner_value, f"{name}.{inner.name}")


def _printed_scalar(field: FieldDescriptor, value: Any) -> str:
    if field.enum_type is not None:
        known = field.enum_type.values_by_number.get(value)
        return known.name if known is not None else str(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return quoted(value.encode())
    return quoted(value) if isinstance(value, bytes) else str(value)


def _printed_value(option: descriptor_pb2.UninterpretedOption) -> str:
    if option.HasField("aggregate_value"):
        return str(option.aggregate_value)
    if option.HasField("string_value"):
        return quoted(option.string_value)
    if option.HasField("identifier_value"):
        return str(option.identifier_value)
    if option.HasField("positive_int_value"):
        return str(option.positive_int_value)
    if option.HasField("negative_int_value"):
        return str(option.negative_int_value)
    return repr(option.double_value)


def uninterpreted(options: Any, interpreted: Message) -> None:
    """Turn the custom options that a descriptor has as extensions into those that a text has.

    `interpreted` is the same message, of a class that knows the extensions.
    """
    options.DiscardUnknownFields()
    for field, _ in options.ListFields():
        if field.is_extension:
            options.ClearExtension(field)
    for field, value in interpreted.ListFields():
        if not field.is_extension:
            continue
        for each in list(value) if _repeated(field) else [value]:
            if field.message_type is not None:
                text = "{" + text_format.MessageToString(each, as_one_line=True) + "}"
            elif isinstance(each, float):
                text = repr(each)
            else:
                text = _printed_scalar(field, each)
            set_option(options, [(field.full_name, True)], tokens(text)[:-LOOK_AHEAD])
