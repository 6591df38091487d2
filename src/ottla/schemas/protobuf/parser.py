"""Reads .proto files of proto2, proto3 and editions into FileDescriptorProtos, type names as written.

It knows the syntax only: which names exist, and whether numbers collide, is checked when the file is linked.
"""

from __future__ import annotations

from typing import Any

from google.protobuf import descriptor_pb2 as pb

from ottla.schemas.limits import require_depth
from ottla.schemas.model import InvalidSchema
from ottla.schemas.protobuf.options import set_option
from ottla.schemas.protobuf.tokens import Token, escaped, tokens, unquoted

_Field = pb.FieldDescriptorProto
SCALARS = {
    name: getattr(_Field, f"TYPE_{name.upper()}")
    for name in (
        "double", "float", "int32", "int64", "uint32", "uint64", "sint32", "sint64", "fixed32", "fixed64", "sfixed32", "sfixed64",
        "bool", "string", "bytes",
    )
}  # fmt: skip
_LABELS = {"optional": _Field.LABEL_OPTIONAL, "required": _Field.LABEL_REQUIRED, "repeated": _Field.LABEL_REPEATED}
NUMBER_MAX = 2**29 - 1
ENUM_MAX = 2**31 - 1


def parse_text(text: str, name: str) -> pb.FileDescriptorProto:
    """The file of this text."""
    file = _Reader(tokens(text), name).file()
    if not (
        file.message_type or file.enum_type or file.service or file.extension or file.dependency or file.syntax or file.package
    ):
        raise InvalidSchema("the schema defines nothing")
    return file


class _Reader:
    def __init__(self, found: list[Token], name: str) -> None:
        self._tokens = found
        self._position = 0
        self._file = pb.FileDescriptorProto(name=name)

    # --- tokens ---

    @property
    def _next(self) -> Token:
        return self._tokens[self._position]

    def _take(self) -> Token:
        token = self._next
        self._position += 1
        if token.kind == "end":
            raise InvalidSchema("the text ends within a definition", f"line {token.line}")
        return token

    def _accept(self, text: str) -> bool:
        if self._next.text == text and self._next.kind != "string":
            self._position += 1
            return True
        return False

    def _expect(self, text: str) -> None:
        if not self._accept(text):
            raise self._wrong(f"{text!r}")

    def _wrong(self, wanted: str) -> InvalidSchema:
        return InvalidSchema(f"expected {wanted}, found {self._next.text or 'the end'!r}", f"line {self._next.line}")

    def _word(self) -> str:
        if self._next.kind != "word":
            raise self._wrong("a name")
        return self._take().text

    def _name(self) -> str:
        """A name with dots, perhaps one in front."""
        name = "." if self._accept(".") else ""
        name += self._word()
        while self._accept("."):
            name += "." + self._word()
        return name

    def _string(self) -> bytes:
        if self._next.kind != "string":
            raise self._wrong("a string")
        value = b""
        while self._next.kind == "string":
            value += unquoted(self._take())
        return value

    def _integer(self, *, least: int = 0, most: int = NUMBER_MAX) -> int:
        negative = self._accept("-")
        token = self._next
        try:
            if token.kind != "number":
                raise ValueError
            octal = len(token.text) > 1 and token.text.isdigit() and token.text[0] == "0"
            number = int(token.text, 8 if octal else 0)
        except ValueError:
            raise self._wrong("a whole number") from None
        number = -number if negative else number
        if not least <= number <= most:
            raise InvalidSchema(f"{number} is not between {least} and {most}", f"line {token.line}")
        self._take()
        return number

    # --- the file ---

    def file(self) -> pb.FileDescriptorProto:
        file = self._file
        if self._next.text in ("syntax", "edition"):
            keyword = self._take().text
            self._expect("=")
            line = self._next.line
            value = self._string().decode(errors="replace")
            self._expect(";")
            if keyword == "syntax":
                if value not in ("proto2", "proto3"):
                    raise InvalidSchema(f'syntax "{value}" is neither proto2 nor proto3', f"line {line}")
                file.syntax = value
            else:
                file.syntax = "editions"
                try:
                    file.edition = pb.Edition.Value(f"EDITION_{value}")
                except ValueError:
                    raise InvalidSchema(f'edition "{value}" is unknown', f"line {line}") from None
        while self._next.kind != "end":
            self._top_level()
        return file

    def _top_level(self) -> None:
        file = self._file
        if self._accept(";"):
            return
        keyword = self._next.text
        if keyword == "package":
            self._take()
            if file.package:
                raise InvalidSchema("package is given twice", f"line {self._next.line}")
            file.package = self._name()
            self._expect(";")
        elif keyword == "import":
            self._import()
        elif keyword == "option":
            self._option(file.options)
        elif keyword == "message":
            self._message(file.message_type.add(), 1)
        elif keyword == "enum":
            self._enum(file.enum_type.add())
        elif keyword == "service":
            self._service(file.service.add())
        elif keyword == "extend":
            self._extend(file.extension, file.message_type, 1)
        elif keyword in ("export", "local"):
            self._take()
        else:
            raise self._wrong("a definition such as message, enum or import")

    def _import(self) -> None:
        self._take()
        public, weak = self._accept("public"), self._accept("weak")
        if self._accept("option"):
            self._file.option_dependency.append(self._string().decode(errors="replace"))
        else:
            path = self._string().decode(errors="replace")
            if path not in self._file.dependency:
                self._file.dependency.append(path)
            index = list(self._file.dependency).index(path)
            if public:
                self._file.public_dependency.append(index)
            if weak:
                self._file.weak_dependency.append(index)
        self._expect(";")

    def _option(self, options: Any) -> None:
        self._take()
        self._assignment(options)
        self._expect(";")

    def _assignment(self, options: Any) -> None:
        name: list[tuple[str, bool]] = []
        while True:
            if self._accept("("):
                name.append((self._name(), True))
                self._expect(")")
            else:
                name.append((self._word(), False))
            if not self._accept("."):
                break
        self._expect("=")
        set_option(options, name, self._value())

    def _value(self) -> list[Token]:
        """The tokens of an option's value: a scalar, or everything between braces."""
        token = self._take()
        if token.text in ("-", "+") and token.kind == "sign":
            return [token, self._take()]
        if token.kind == "string":
            found = [token]
            while self._next.kind == "string":
                found.append(self._take())
            return found
        if token.text not in "{[" or token.kind != "sign":
            if token.kind == "sign":
                self._position -= 1
                raise self._wrong("a value")
            found = [token]
            while token.kind == "word" and self._next.text == ".":
                found += [self._take(), self._take()]
            return found
        found, depth = [token], 1
        while depth:
            token = self._take()
            if token.kind == "sign":
                depth += (token.text in "{[<") - (token.text in "}]>")
            require_depth(depth, f"line {token.line}")
            found.append(token)
        return found

    def _bracketed(self, options: Any, field: Any = None) -> None:
        """`[a = 1, (b) = 2]` behind a field or constant; `default` and `json_name` belong to the field itself."""
        if not self._accept("["):
            return
        while True:
            if field is not None and self._next.text in ("default", "json_name") and self._tokens[self._position + 1].text == "=":
                keyword = self._take().text
                self._take()
                if keyword == "json_name":
                    field.json_name = self._string().decode(errors="replace")
                else:
                    field.default_value = self._default(field)
            else:
                self._assignment(options)
            if not self._accept(","):
                break
        self._expect("]")

    def _default(self, field: Any) -> str:
        value = self._value()
        if value[-1].kind == "string":
            raw = b"".join(map(unquoted, value))
            return escaped(raw) if field.type == _Field.TYPE_BYTES else raw.decode(errors="replace")
        text = "".join(each.text for each in value if each.text != "+")
        if value[-1].kind == "number" and field.type not in (_Field.TYPE_FLOAT, _Field.TYPE_DOUBLE):
            try:
                return str(int(text, 0))
            except ValueError:
                raise InvalidSchema(f"{text} is no default of field {field.name}", f"line {value[0].line}") from None
        return text

    # --- messages ---

    def _message(self, message: pb.DescriptorProto, depth: int) -> None:
        self._take()
        message.name = self._word()
        self._message_body(message, depth)

    def _message_body(self, message: pb.DescriptorProto, depth: int) -> None:
        require_depth(depth, f"line {self._next.line}")
        self._expect("{")
        while not self._accept("}"):
            self._member(message, depth)
        for field in message.field:
            if field.proto3_optional:
                # As protoc does: behind the declared ones, each of its own.
                taken = {each.name for each in message.oneof_decl} | {each.name for each in message.field}
                name = f"_{field.name}"
                while name in taken:
                    name = "X" + name
                field.oneof_index = len(message.oneof_decl)
                message.oneof_decl.add(name=name)

    def _member(self, message: pb.DescriptorProto, depth: int) -> None:
        following = self._tokens[self._position + 1] if self._next.kind != "end" else self._next
        keyword = self._next.text
        named = following.kind == "word"
        if self._accept(";"):
            return
        if keyword == "option" and (named or following.text == "("):
            self._option(message.options)
        elif keyword == "message" and named and self._tokens[self._position + 2].text == "{":
            self._message(message.nested_type.add(), depth + 1)
        elif keyword == "enum" and named and self._tokens[self._position + 2].text == "{":
            self._enum(message.enum_type.add())
        elif keyword == "extend" and (named or following.text == ".") and self._is_extend():
            self._extend(message.extension, message.nested_type, depth)
        elif keyword == "oneof" and named and self._tokens[self._position + 2].text == "{":
            self._oneof(message, depth)
        elif keyword == "reserved" and (following.kind in ("string", "number") or (named and self._reserved_names())):
            self._reserved(message, NUMBER_MAX, 1)
        elif keyword == "extensions" and following.kind == "number":
            self._extensions(message)
        elif keyword == "map" and following.text == "<":
            self._map(message)
        else:
            self._field(message.field, message.nested_type, depth)

    def _is_extend(self) -> bool:
        position = self._position + 1
        while self._tokens[position].kind == "word" or self._tokens[position].text == ".":
            position += 1
        return self._tokens[position].text == "{"

    def _reserved_names(self) -> bool:
        """Whether `reserved a, b;` follows, as editions write it, and not a field of a type of that name."""
        return self._tokens[self._position + 2].text in (",", ";")

    def _field(self, fields: Any, nested: Any, depth: int, oneof: int | None = None) -> None:
        field = fields.add()
        label = self._next.text
        following = self._tokens[self._position + 1]
        if oneof is None and label in _LABELS and (following.kind == "word" or following.text == "."):
            self._take()
            field.label = _LABELS[label]
            field.proto3_optional = label == "optional" and self._file.syntax == "proto3"
            if not field.proto3_optional:
                field.ClearField("proto3_optional")
        else:
            field.label = _Field.LABEL_OPTIONAL
            if self._file.syntax in ("", "proto2") and oneof is None:
                raise self._wrong("optional, required or repeated, as proto2 has it,")
        if oneof is not None:
            field.oneof_index = oneof
        if self._next.text == "group" and self._tokens[self._position + 2].text == "=":
            self._group(field, nested, depth)
            return
        if self._next.text == "map" and following.text == "<":
            raise self._wrong("a field that is no map")
        self._type(field)
        field.name = self._word()
        self._expect("=")
        field.number = self._integer(least=1)
        self._bracketed(field.options, field)
        self._expect(";")

    def _type(self, field: Any) -> None:
        name = self._name()
        if name in SCALARS:
            field.type = SCALARS[name]
        else:
            field.type_name = name

    def _group(self, field: Any, nested: Any, depth: int) -> None:
        self._take()
        name = self._word()
        self._expect("=")
        field.number = self._integer(least=1)
        field.name, field.type, field.type_name = name.lower(), _Field.TYPE_GROUP, name
        self._bracketed(field.options, field)
        message = nested.add(name=name)
        self._message_body(message, depth + 1)

    def _map(self, message: pb.DescriptorProto) -> None:
        self._take()
        self._expect("<")
        field = message.field.add(label=_Field.LABEL_REPEATED)
        entry = message.nested_type.add()
        entry.options.map_entry = True
        key = entry.field.add(name="key", number=1, label=_Field.LABEL_OPTIONAL)
        self._type(key)
        self._expect(",")
        value = entry.field.add(name="value", number=2, label=_Field.LABEL_OPTIONAL)
        self._type(value)
        self._expect(">")
        field.name = self._word()
        entry.name = "".join(part[:1].upper() + part[1:] for part in field.name.split("_")) + "Entry"
        field.type, field.type_name = _Field.TYPE_MESSAGE, entry.name
        self._expect("=")
        field.number = self._integer(least=1)
        self._bracketed(field.options, field)
        self._expect(";")

    def _oneof(self, message: pb.DescriptorProto, depth: int) -> None:
        self._take()
        oneof = message.oneof_decl.add(name=self._word())
        index = len(message.oneof_decl) - 1
        self._expect("{")
        while not self._accept("}"):
            if self._accept(";"):
                continue
            if self._next.text == "option" and self._tokens[self._position + 1].text != "=" and self._is_assignment():
                self._option(oneof.options)
            else:
                self._field(message.field, message.nested_type, depth, index)

    def _is_assignment(self) -> bool:
        """Whether `option name = value` follows, and not a field of a type named option."""
        following = self._tokens[self._position + 1]
        return (
            following.text == "("
            or self._tokens[self._position + 3].kind != "number"
            or self._tokens[self._position + 2].text == "."
        )

    def _reserved(self, target: Any, most: int, extra: int) -> None:
        self._take()
        while True:
            if self._next.kind == "string":
                target.reserved_name.append(self._string().decode(errors="replace"))
            elif self._next.kind == "word":
                target.reserved_name.append(self._word())
            else:
                self._range(target.reserved_range, most, extra)
            if not self._accept(","):
                break
        self._expect(";")

    def _range(self, ranges: Any, most: int, extra: int) -> Any:
        """A range of numbers. A message's ends behind its last number, an enum's with it."""
        least = 1 if extra else -(2**31)
        start = self._integer(least=least, most=most)
        end = start
        if self._accept("to"):
            end = most if self._accept("max") else self._integer(least=start, most=most)
        return ranges.add(start=start, end=end + extra)

    def _extensions(self, message: pb.DescriptorProto) -> None:
        self._take()
        added = []
        while True:
            added.append(self._range(message.extension_range, NUMBER_MAX, 1))
            if not self._accept(","):
                break
        begin = self._position
        for each in added:
            self._position = begin
            self._bracketed(each.options)
        self._expect(";")

    def _extend(self, extensions: Any, nested: Any, depth: int) -> None:
        self._take()
        extendee = self._name()
        self._expect("{")
        while not self._accept("}"):
            if self._accept(";"):
                continue
            self._field(extensions, nested, depth)
            extensions[-1].extendee = extendee
            if extensions[-1].proto3_optional:
                extensions[-1].proto3_optional = True

    def _enum(self, enum: pb.EnumDescriptorProto) -> None:
        self._take()
        enum.name = self._word()
        self._expect("{")
        while not self._accept("}"):
            following = self._tokens[self._position + 1]
            if self._accept(";"):
                continue
            if self._next.text == "option" and following.text != "=":
                self._option(enum.options)
            elif self._next.text == "reserved" and following.text != "=":
                self._reserved(enum, ENUM_MAX, 0)
            else:
                value = enum.value.add(name=self._word())
                self._expect("=")
                value.number = self._integer(least=-(2**31), most=ENUM_MAX)
                self._bracketed(value.options)
                self._expect(";")

    def _service(self, service: pb.ServiceDescriptorProto) -> None:
        self._take()
        service.name = self._word()
        self._expect("{")
        while not self._accept("}"):
            if self._accept(";"):
                continue
            if self._next.text == "option":
                self._option(service.options)
                continue
            self._expect("rpc")
            method = service.method.add(name=self._word())
            method.input_type, streams = self._message_type()
            if streams:
                method.client_streaming = True
            self._expect("returns")
            method.output_type, streams = self._message_type()
            if streams:
                method.server_streaming = True
            if self._accept("{"):
                while not self._accept("}"):
                    if not self._accept(";"):
                        if self._next.text != "option":
                            raise self._wrong("an option")
                        self._option(method.options)
                self._accept(";")
            else:
                self._expect(";")

    def _message_type(self) -> tuple[str, bool]:
        self._expect("(")
        streams = self._next.text == "stream" and self._tokens[self._position + 1].text != ")"
        if streams:
            self._take()
        name = self._name()
        self._expect(")")
        return name, streams
