"""From a message's definition to the two functions that read and write one of its versions.

Owns: `decoder` and `encoder`, made on first use from generated source and kept, and `decode`/`encode` for a message at once.
The source is straight-line: a loop per array, no call per field, and a run of fields of fixed size is one `struct` call. It can
be read: `print(decoder_source(ProduceRequest, 9))`.

Invariants:
1. A decoder returns a value or raises MalformedInput, whatever the bytes.
2. A length or count is held against the bytes that remain before anything is built from it; an element counts at least one byte.
   Where a bound is given, all arrays of a message together hold no more elements than that.
3. `bytes` and `records` come back as slices of the given buffer: no copy, and not longer valid than it.
4. An encoder appends parts that together are the message. File ranges and large buffers pass as they are, everything between
   them is one bytearray.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, Protocol, TypeVar

from ottla.errors import MalformedInput
from ottla.ports import FileRange, Part
from ottla.types import ZERO_UUID, Buffer
from ottla.wire.schema import Definition, Field, ListOf, Type, definition_of, is_fresh
from ottla.wire.varint import read_unsigned_varint, write_unsigned_varint

T = TypeVar("T")
Contra = TypeVar("Contra", contravariant=True)

Decoder = Callable[[Buffer, int], tuple[T, int]]


class Encoder(Protocol[Contra]):
    def __call__(self, message: Contra, parts: list[Part], start: bytes = b"", /) -> None:
        """Append the message to `parts`, `start` before it in the same bytearray: the first part, where there is a start."""
        ...


JOIN_BYTES_MAX = 4096
"""A buffer up to this size is copied into its surroundings rather than being a part of its own."""

_STRING_BYTES_MAX = 32767

_TAGS_MAX = 1024
"""Tagged fields behind one part. Kafka's messages know a handful; stepping over millions of them would take seconds."""

_FIXED = {
    "bool": "?",
    "int8": "b",
    "int16": "h",
    "uint16": "H",
    "int32": "i",
    "uint32": "I",
    "int64": "q",
    "float64": "d",
    "uuid": "16s",
}

_decoders: dict[tuple[type, int, int | None], Any] = {}
_encoders: dict[tuple[type, int], Any] = {}


def decoder(cls: type[T], version: int, elements_max: int | None = None) -> Decoder[T]:
    """The function (buffer, position) -> (message, position after it) for one version; `elements_max` in all its arrays."""
    found: Decoder[T] | None = _decoders.get((cls, version, elements_max))
    if found is None:
        found = _decoders[cls, version, elements_max] = _DecoderWriter(cls, version, elements_max).compiled()
    return found


def encoder(cls: type[T], version: int) -> Encoder[T]:
    """The function (message, parts, start) -> None that appends one version of a message to the parts of a reply."""
    found: Encoder[T] | None = _encoders.get((cls, version))
    if found is None:
        found = _encoders[cls, version] = _EncoderWriter(cls, version).compiled()
    return found


def decode(cls: type[T], version: int, buf: Buffer) -> T:
    """A message that fills the whole buffer."""
    message, position = decoder(cls, version)(buf, 0)
    if position != len(buf):
        raise MalformedInput(f"{cls.__name__} v{version}: {len(buf) - position} bytes too many")
    return message


def encode(message: object, version: int) -> bytes:
    """A message as one string of bytes; file ranges are read. For tests, tools and records."""
    parts: list[Part] = []
    encoder(type(message), version)(message, parts)
    return b"".join(p.file.read(p.position, p.size) if isinstance(p, FileRange) else p for p in parts)


def decoder_source(cls: type, version: int) -> str:
    return _DecoderWriter(cls, version).source()


def encoder_source(cls: type, version: int) -> str:
    return _EncoderWriter(cls, version).source()


def parts_size(parts: list[Part]) -> int:
    """The bytes of all parts together."""
    size = 0
    for part in parts:
        size += part.size if isinstance(part, FileRange) else len(part)
    return size


class _Writer:
    """What both kinds of generated functions share: lines, names, and the run of fixed-size values not yet written out."""

    HEADER = ""

    def __init__(self, cls: type, version: int) -> None:
        definition = definition_of(cls)
        if definition.versions is None:
            raise TypeError(f"{cls.__name__} is a part, it has no versions of its own")
        if version not in definition.versions:
            raise ValueError(f"{cls.__name__} has no version {version}")
        self.cls = cls
        self.definition = definition
        self.version = version
        self.flexible = version in definition.flexible
        self.lines: list[str] = []
        self.depth = 2
        self.names: dict[str, Any] = {}
        self.run: list[tuple[str, str]] = []
        self.count = 0

    def line(self, text: str) -> None:
        self.flush()
        self.lines.append("    " * self.depth + text)

    def fixed(self, form: str, expression: str) -> None:
        """One more value for the current run: what to store to, or what to write."""
        self.run.append((form, expression))

    def flush(self) -> None:
        raise NotImplementedError

    def name(self, prefix: str) -> str:
        self.count += 1
        return f"{prefix}{self.count}"

    def constant(self, prefix: str, value: Any) -> str:
        for name, known in self.names.items():
            if known is value:
                return name
        name = self.name(prefix)
        self.names[name] = value
        return name

    def layout(self) -> struct.Struct:
        """The current run's form; precompiled, as each has its own."""
        form = ">" + "".join(form for form, _ in self.run)
        for known in self.names.values():
            if isinstance(known, struct.Struct) and known.format == form:
                return known
        return struct.Struct(form)

    def body(self) -> list[str]:
        raise NotImplementedError

    def source(self) -> str:
        return "\n".join([self.HEADER, *self.body()])

    def build(self, body: list[str]) -> Callable[..., Any]:
        scope = dict(self.names)
        for name, value in self.names.items():
            if isinstance(value, struct.Struct):
                scope[name] = value.unpack_from if isinstance(self, _DecoderWriter) else value.pack
        exec(compile("\n".join([self.HEADER, *body]), f"<{self.definition.name} v{self.version}>", "exec"), scope)
        made: Callable[..., Any] = scope["run"]
        return made


class _DecoderWriter(_Writer):
    HEADER = "def run(given, pos):"

    def __init__(self, cls: type, version: int, elements_max: int | None = None) -> None:
        super().__init__(cls, version)
        self.elements_max = elements_max

    def compiled(self) -> Callable[..., Any]:
        body = self.body()
        self.names |= {
            "new": object.__new__,
            "malformed": MalformedInput,
            "varint": read_unsigned_varint,
            "string_length": _string_length,
            "skip_tags": skip_tags,
            "unpack": struct.unpack,
            "Cut": (struct.error, IndexError),
        }
        return self.build(body)

    def body(self) -> list[str]:
        self.lines = []
        self.struct(self.cls, "message")
        self.flush()
        what = f"{self.definition.name} v{self.version}"
        return [
            "    buf = memoryview(given)",
            "    end = len(buf)",
            *([] if self.elements_max is None else [f"    elements_left = {self.elements_max}"]),
            "    try:",
            *self.lines,
            "    except Cut as error:",
            f"        raise malformed({what + ': cut short'!r}) from error",
            "    except UnicodeDecodeError as error:",
            f"        raise malformed({what + ': a string is not UTF-8'!r}) from error",
            "    return message, pos",
        ]

    def flush(self) -> None:
        if not self.run:
            return
        layout = self.layout()
        targets = ", ".join(target for _, target in self.run)
        self.run = []
        if layout.format == ">B":
            self.line(f"{targets} = buf[pos]")
            self.line("pos += 1")
            return
        name = self.constant("unpack", layout)
        comma = "" if ", " in targets else ","
        self.line(f"{targets}{comma} = {name}(buf, pos)")
        self.line(f"pos += {layout.size}")

    def refuse(self, condition: str, field: str, why: str) -> None:
        self.line(f"if {condition}:")
        self.line(f"    raise malformed({f'{self.definition.name} v{self.version}: {field}: {why}'!r})")

    def struct(self, cls: type, target: str) -> None:
        """Code that makes a part and leaves it in the variable `target`."""
        fields = definition_of(cls).fields
        self.line(f"{target} = new({self.constant(cls.__name__, cls)})")
        tagged = []
        for field in fields:
            attribute = f"{target}.{field.name}"
            if self.version not in field.versions:
                self.default(field, attribute)
            elif self.version in field.tagged and self.flexible:
                self.default(field, attribute)
                tagged.append(field)
        for field in fields:
            if self.version in field.versions and field not in tagged:
                self.value(field.type, f"{target}.{field.name}", self.version in field.nullable, field.name)
        if self.flexible:
            self.tags(target, tagged)

    def default(self, field: Field, attribute: str) -> None:
        if isinstance(field.default, list):
            self.line(f"{attribute} = []")
        elif is_fresh(field.default):
            self.line(f"{attribute} = {self.constant(field.default.cls.__name__, field.default.cls)}()")
        else:
            self.line(f"{attribute} = {field.default!r}")

    def value(self, type_: Type, target: str, nullable: bool, field: str) -> None:
        if isinstance(type_, ListOf):
            self.array(type_.element, target, nullable, field)
        elif isinstance(type_, type):
            self.part(type_, target, nullable)
        elif type_ in _FIXED:
            self.fixed(_FIXED[type_], target)
        else:
            self.slice(type_, target, nullable, field)

    def part(self, cls: type, target: str, nullable: bool, *, tagged: bool = False) -> None:
        inner = self.name("part")
        if nullable:
            self.fixed("b", "mark")
            self.line(f"if mark {'<=' if tagged else '<'} 0:")
            self.line(f"    {target} = None")
            self.line("else:")
            self.depth += 1
        self.struct(cls, inner)
        self.line(f"{target} = {inner}")
        if nullable:
            self.depth -= 1

    def length(self, form: str, short: bool) -> str:
        """Code that reads a length or count. Returns its variable: -1 (or less) for null."""
        size = self.name("n")
        if not self.flexible:
            self.fixed(form, size)
            self.flush()
            return size
        # Nearly always one byte, which then belongs to the run of fixed-size values before it.
        self.fixed("B", size)
        self.line(f"if {size} > 127:")
        self.line(f"    {size}, pos = {'string_length' if short else 'varint'}(buf, pos - 1)")
        self.line(f"{size} -= 1")
        return size

    def slice(self, type_: str, target: str, nullable: bool, field: str) -> None:
        text = type_ == "string"
        size = self.length("h" if text else "i", text)
        value = 'str(buf[pos:stop], "utf-8")' if text else "buf[pos:stop]"
        if nullable:
            self.line(f"if {size} < 0:")
            self.line(f"    {target} = None")
            self.line("else:")
            self.depth += 1
        else:
            self.refuse(f"{size} < 0", field, "null is not allowed")
        self.line(f"stop = pos + {size}")
        self.refuse("stop > end", field, "longer than what is left")
        self.line(f"{target} = {value}")
        self.line("pos = stop")
        if nullable:
            self.depth -= 1

    def array(self, element: str | type, target: str, nullable: bool, field: str) -> None:
        size = self.length("i", short=False)
        if nullable:
            self.line(f"if {size} < 0:")
            self.line(f"    {target} = None")
            self.line("else:")
            self.depth += 1
        else:
            self.refuse(f"{size} < 0", field, "null is not allowed")
        least = max(1, _size_least(element, self.version, self.flexible))
        self.refuse(f"{size} > (end - pos) // {least}", field, "more elements than bytes are left")
        if self.elements_max is not None:
            self.line(f"elements_left -= {size}")
            self.refuse("elements_left < 0", field, f"more than {self.elements_max} elements in all")
        if isinstance(element, str) and element in _FIXED and element != "uuid":
            width = struct.calcsize(_FIXED[element])
            self.line(f"stop = pos + {size} * {width}")
            self.line(f'{target} = list(unpack(f">{{{size}}}{_FIXED[element]}", buf[pos:stop]))')
            self.line("pos = stop")
        else:
            items = self.name("items")
            item = self.name("item")
            self.line(f"{target} = {items} = []")
            self.line(f"for _ in range({size}):")
            self.depth += 1
            if isinstance(element, type):
                self.struct(element, item)
            else:
                self.value(element, item, nullable=False, field=field)
            self.line(f"{items}.append({item})")
            self.depth -= 1
        if nullable:
            self.depth -= 1

    def tags(self, target: str, tagged: list[Field]) -> None:
        self.fixed("B", "tags")
        self.line("if tags:")
        self.depth += 1
        if not tagged:
            self.line("pos = skip_tags(buf, pos - 1)")
            self.depth -= 1
            return
        count, tag, last, size, stop = (self.name(word) for word in ("count", "tag", "last", "size", "stop"))
        self.line(f"{count}, pos = varint(buf, pos - 1)")
        self.refuse(f"{count} > (end - pos) // 2", "tagged fields", "more than bytes are left")
        self.refuse(f"{count} > {_TAGS_MAX}", "tagged fields", f"more than {_TAGS_MAX}")
        self.line(f"{last} = -1")
        self.line(f"for _ in range({count}):")
        self.depth += 1
        self.line(f"{tag}, pos = varint(buf, pos)")
        self.refuse(f"{tag} <= {last}", "tagged fields", "not in ascending order")
        self.line(f"{last} = {tag}")
        self.line(f"{size}, pos = varint(buf, pos)")
        self.line(f"{stop} = pos + {size}")
        self.refuse(f"{stop} > end", "tagged fields", "longer than what is left")
        branch = "if"
        for field in tagged:
            self.line(f"{branch} {tag} == {field.tag}:")
            branch = "elif"
            self.depth += 1
            attribute, nullable = f"{target}.{field.name}", self.version in field.nullable
            if isinstance(field.type, type):
                self.part(field.type, attribute, nullable, tagged=True)
            else:
                self.value(field.type, attribute, nullable, field.name)
            self.refuse(f"pos != {stop}", field.name, "its size is not the one said")
            self.depth -= 1
        self.line("else:")
        self.line(f"    pos = {stop}")
        self.depth -= 2


class _EncoderWriter(_Writer):
    HEADER = 'def run(message, parts, start=b""):'

    def __init__(self, cls: type, version: int) -> None:
        super().__init__(cls, version)
        self.depth = 1

    def compiled(self) -> Callable[..., Any]:
        body = self.body()
        self.names |= {
            "varint": write_unsigned_varint,
            "string_too_long": _string_too_long,
            "records_size": _records_size,
            "put": _put,
            "pack_array": struct.pack,
        }
        return self.build(body)

    def body(self) -> list[str]:
        self.lines = []
        self.struct(self.cls, "message")
        self.flush()
        return ["    out = bytearray(start)", *self.lines, "    if out:", "        parts.append(out)"]

    def flush(self) -> None:
        if not self.run:
            return
        layout = self.layout()
        values = ", ".join(value for form, value in self.run if form != "x")
        self.run = []
        if not values:
            self.line(f"out += {bytes(layout.size)!r}")
            return
        self.line(f"out += {self.constant('pack', layout)}({values})")

    def struct(self, cls: type, source: str) -> None:
        tagged = []
        for field in definition_of(cls).fields:
            attribute = f"{source}.{field.name}"
            if self.version not in field.versions:
                if not field.ignorable:
                    self.line(f"if {self.differs(field, attribute)}:")
                    why = f"{self.definition.name} v{self.version} cannot carry {field.name}"
                    self.line(f"    raise ValueError({why!r})")
            elif self.version in field.tagged and self.flexible:
                tagged.append(field)
            else:
                self.value(field.type, attribute, self.version in field.nullable)
        if self.flexible:
            self.tags(source, tagged)

    def differs(self, field: Field, attribute: str) -> str:
        """An expression: whether an attribute is anything but its default."""
        if isinstance(field.type, ListOf) or field.type in ("string", "bytes", "records"):
            if field.default is None:
                return f"{attribute} is not None"
            if not field.default:
                return f"{attribute} is None or len({attribute})" if field.nullable.last >= 0 else f"len({attribute})"
        if isinstance(field.type, type):
            empty = self.constant("empty_" + field.type.__name__, field.type())
            if field.default is None:
                optional = field.nullable.last >= 0
                return f"{attribute} is not None" + ("" if optional else f" and {attribute} != {empty}")
            return f"{attribute} != {empty}"
        if field.type == "uuid":
            return f"{attribute} != {self.constant('ZERO', ZERO_UUID)}"
        return f"{attribute} != {field.default!r}"

    def value(self, type_: Type, source: str, nullable: bool) -> None:
        if isinstance(type_, ListOf):
            self.array(type_.element, source, nullable)
        elif isinstance(type_, type):
            self.part(type_, source, nullable)
        elif type_ in _FIXED:
            self.fixed(_FIXED[type_], source)
        elif type_ == "string":
            self.string(source, nullable)
        else:
            self.buffer(type_, source, nullable)

    def part(self, cls: type, source: str, nullable: bool, *, tagged: bool = False) -> None:
        inner = self.name("part")
        self.line(f"{inner} = {source}")
        if nullable:
            self.line(f"if {inner} is None:")
            self.line(f"    out.append({0 if tagged else 255})")
            self.line("else:")
            self.depth += 1
            self.line("out.append(1)")
        self.struct(cls, inner)
        self.flush()
        if nullable:
            self.depth -= 1

    def null(self, source: str, form: str) -> None:
        self.line(f"if {source} is None:")
        null = b"\x00" if self.flexible else struct.pack(form, -1)
        self.line(f"    out += {null!r}")
        self.line("else:")
        self.depth += 1

    def length(self, size: str, form: str) -> None:
        if not self.flexible:
            self.fixed(form, size)
            return
        self.line(f"if {size} < 127:")
        self.line(f"    out.append({size} + 1)")
        self.line("else:")
        self.line(f"    varint(out, {size} + 1)")

    def string(self, source: str, nullable: bool) -> None:
        text, size = self.name("text"), self.name("n")
        self.line(f"{text} = {source}")
        if nullable:
            self.null(text, ">h")
        self.line(f"{text} = {text}.encode()")
        self.line(f"{size} = len({text})")
        self.line(f"if {size} > {_STRING_BYTES_MAX}:")
        self.line(f"    string_too_long({size})")
        self.length(size, "h")
        self.line(f"out += {text}")
        if nullable:
            self.depth -= 1

    def buffer(self, type_: str, source: str, nullable: bool) -> None:
        value, size = self.name("value"), self.name("n")
        self.line(f"{value} = {source}")
        if nullable:
            self.null(value, ">i")
        self.line(f"{size} = {'records_size' if type_ == 'records' else 'len'}({value})")
        self.length(size, "i")
        if type_ == "records":
            self.line(f"out = put(parts, out, {value}, {size})")
        else:
            self.line(f"out += {value}")
        if nullable:
            self.depth -= 1

    def array(self, element: str | type, source: str, nullable: bool) -> None:
        items, size = self.name("items"), self.name("n")
        self.line(f"{items} = {source}")
        if nullable:
            self.null(items, ">i")
        self.line(f"{size} = len({items})")
        self.length(size, "i")
        if isinstance(element, str) and element in _FIXED and element != "uuid":
            self.line(f'out += pack_array(f">{{{size}}}{_FIXED[element]}", *{items})')
        else:
            item = self.name("item")
            self.line(f"for {item} in {items}:")
            self.depth += 1
            if isinstance(element, type):
                before = len(self.lines)
                self.struct(element, item)
                self.flush()
                if len(self.lines) == before:
                    self.line("pass")
            else:
                self.value(element, item, nullable=False)
                self.flush()
            self.depth -= 1
        if nullable:
            self.flush()
            self.depth -= 1

    def tags(self, source: str, tagged: list[Field]) -> None:
        if not tagged:
            self.fixed("x", "")
            return
        flags = []
        for field in sorted(tagged, key=lambda field: field.tag or 0):
            flag = self.name("has")
            # A tagged struct that may be null is always there: Kafka takes a missing one for an empty one.
            always = isinstance(field.type, type) and self.version in field.nullable
            self.line(f"{flag} = {always or self.differs(field, f'{source}.{field.name}')}")
            flags.append((flag, field))
        self.line(f"if {' or '.join(flag for flag, _ in flags)}:")
        self.depth += 1
        count = " + ".join(f"({flag} and 1 or 0)" for flag, _ in flags)
        self.line(f"varint(out, {count})")
        around = self.name("around")
        for flag, field in flags:
            self.line(f"if {flag}:")
            self.depth += 1
            self.line(f"{around} = out")
            self.line("out = bytearray()")
            attribute, nullable = f"{source}.{field.name}", self.version in field.nullable
            if isinstance(field.type, type):
                self.part(field.type, attribute, nullable, tagged=True)
            else:
                self.value(field.type, attribute, nullable)
            self.line(f"varint({around}, {field.tag})")
            self.line(f"varint({around}, len(out))")
            self.line(f"{around} += out")
            self.line(f"out = {around}")
            self.depth -= 1
        self.depth -= 1
        self.line("else:")
        self.line("    out.append(0)")


def _size_least(type_: Type, version: int, flexible: bool) -> int:
    """The fewest bytes a value can take."""
    if isinstance(type_, ListOf):
        return 1 if flexible else 4
    if isinstance(type_, str):
        if type_ in _FIXED:
            return struct.calcsize(">" + _FIXED[type_])
        return 1 if flexible else 2 if type_ == "string" else 4
    definition: Definition = definition_of(type_)
    total = 1 if flexible else 0
    for field in definition.fields:
        if version not in field.versions or (flexible and version in field.tagged):
            continue
        if field.is_struct and version in field.nullable:
            total += 1
        else:
            total += _size_least(field.type, version, flexible)
    return total


def _string_length(buf: memoryview, position: int) -> tuple[int, int]:
    """The length of a compact string, one more than its bytes; strings are as short in all versions."""
    size, position = read_unsigned_varint(buf, position)
    if size > _STRING_BYTES_MAX + 1:
        raise MalformedInput(f"a string of {size - 1} bytes")
    return size, position


def skip_tags(buf: memoryview, position: int) -> int:
    """Step over tagged fields where this version knows none: a newer peer may send some."""
    end = len(buf)
    count, position = read_unsigned_varint(buf, position)
    if count > (end - position) // 2:
        raise MalformedInput("tagged fields: more than bytes are left")
    if count > _TAGS_MAX:
        raise MalformedInput(f"tagged fields: more than {_TAGS_MAX}")
    last = -1
    for _ in range(count):
        tag, position = read_unsigned_varint(buf, position)
        if tag <= last:
            raise MalformedInput("tagged fields: not in ascending order")
        last = tag
        size, position = read_unsigned_varint(buf, position)
        position += size
        if position > end:
            raise MalformedInput("tagged fields: longer than what is left")
    return position


def _string_too_long(size: int) -> None:
    raise ValueError(f"a string of {size} bytes, at most {_STRING_BYTES_MAX} can be sent")


def _records_size(records: Part | list[Part]) -> int:
    if isinstance(records, list):
        return parts_size(records)
    return records.size if isinstance(records, FileRange) else len(records)


def _put(parts: list[Part], out: bytearray, records: Part | list[Part], size: int) -> bytearray:
    """Add records whose length is written already. Returns the bytearray to go on with."""
    if isinstance(records, list):
        for part in records:
            out = _put(parts, out, part, part.size if isinstance(part, FileRange) else len(part))
        return out
    if not size:
        return out
    if size <= JOIN_BYTES_MAX and not isinstance(records, FileRange):
        out += records
        return out
    if out:
        parts.append(out)
    parts.append(records)
    return bytearray()
