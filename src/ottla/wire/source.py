"""Straight-line source of one message's decoder and encoder in one version.

Owns the walk over a message's definition: a loop per array, no call per field, and a run of fields of fixed size is one `struct`
call. `codec` executes this source; `generate` overrides how values are read and written and has mypyc compile the result. Both
therefore accept, refuse and write the same bytes.
"""

from __future__ import annotations

import struct
from typing import Any

from ottla.types import ZERO_UUID
from ottla.wire.schema import Definition, Field, Fresh, ListOf, Type, definition_of

STRING_BYTES_MAX = 32767

TAGS_MAX = 1024
"""Tagged fields of one struct. Kafka's messages define a handful; skipping millions would take seconds."""

FIXED = {
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


class Source:
    """Shared by decoders and encoders: lines, names, constants, and the run of fixed-size values not yet written out."""

    FIRST_DEPTH = 1

    def __init__(self, cls: type, version: int) -> None:
        definition = definition_of(cls)
        if definition.versions is None:
            raise TypeError(f"{cls.__name__} is a part of messages, it has no versions of its own")
        if version not in definition.versions:
            raise ValueError(f"{cls.__name__} has no version {version}")
        self.cls = cls
        self.definition = definition
        self.version = version
        self.flexible = version in definition.flexible
        self.lines: list[str] = []
        self.depth = self.FIRST_DEPTH
        self.constants: dict[str, Any] = {}
        """Values the source uses by name."""
        self.run: list[tuple[str, str]] = []
        self.count = 0

    def line(self, text: str) -> None:
        self.flush()
        self.lines.append("    " * self.depth + text)

    def fixed(self, form: str, expression: str) -> None:
        """Add a value to the current run: the target to read into, or the expression to write."""
        self.run.append((form, expression))

    def flush(self) -> None:
        """Write out the current run."""
        raise NotImplementedError

    def name(self, prefix: str) -> str:
        self.count += 1
        return f"{prefix}{self.count}"

    def constant(self, prefix: str, value: Any) -> str:
        for name, known in self.constants.items():
            if known is value:
                return name
        name = self.name(prefix)
        self.constants[name] = value
        return name

    def layout(self) -> struct.Struct:
        """The current run as a Struct; equal runs of a message share one."""
        form = ">" + "".join(form for form, _ in self.run)
        for known in self.constants.values():
            if isinstance(known, struct.Struct) and known.format == form:
                return known
        return struct.Struct(form)

    def function(self) -> list[str]:
        """The lines of the function `run`."""
        raise NotImplementedError


class DecoderSource(Source):
    """`run(given, pos) -> (message, position after it)`.

    With `elements_max`, all arrays of the message together hold no more elements than that.
    """

    FIRST_DEPTH = 2
    SHORT = "(struct_error, IndexError)"
    """What reading beyond the buffer raises."""

    def __init__(self, cls: type, version: int, elements_max: int | None = None) -> None:
        super().__init__(cls, version)
        self.elements_max = elements_max

    def function(self) -> list[str]:
        self.struct(self.cls, "message")
        self.flush()
        return [
            *self.head(),
            "    try:",
            *self.lines,
            f"    except {self.SHORT} as error:",
            *self.retry(),
            f"        raise MalformedInput({self.definition.name + ': shorter than its fields'!r}) from error",
            "    except UnicodeDecodeError as error:",
            f"        raise MalformedInput({self.definition.name + ': a string is not UTF-8'!r}) from error",
            "    return message, pos",
        ]

    def head(self) -> list[str]:
        """The lines before the first field."""
        limit = [] if self.elements_max is None else [f"    elements_left = {self.elements_max}"]
        return ["def run(given, pos):", "    buf = memoryview(given)", "    end = len(buf)", *limit]

    def retry(self) -> list[str]:
        """Lines that read the message in another way when it seems too short."""
        return []

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
        self.line(f"    raise MalformedInput({f'{self.definition.name}: {field}: {why}'!r})")

    def begin(self, cls: type, target: str) -> None:
        """Before the fields of a struct are read."""
        self.line(f"{target} = {self.constant('new', cls.__new__)}({self.constant(cls.__name__, cls)})")

    def attribute(self, target: str, field: Field) -> str:
        """Where a field of the struct in `target` is read to."""
        return f"{target}.{field.name}"

    def finish(self, cls: type, target: str) -> None:
        """After the fields of a struct are read."""

    def struct(self, cls: type, target: str) -> None:
        """Read a struct and leave it in the variable `target`."""
        fields = definition_of(cls).fields
        self.begin(cls, target)
        tagged = []
        for field in fields:
            if self.version not in field.versions:
                self.default(field, self.attribute(target, field))
            elif self.version in field.tagged and self.flexible:
                self.default(field, self.attribute(target, field))
                tagged.append(field)
        for field in fields:
            if self.version in field.versions and field not in tagged:
                self.value(field.type, self.attribute(target, field), self.version in field.nullable, field.name)
        if self.flexible:
            self.tags(target, tagged)
        self.finish(cls, target)

    def default(self, field: Field, attribute: str) -> None:
        if isinstance(field.default, list):
            self.line(f"{attribute} = []")
        elif isinstance(field.default, Fresh):
            self.line(f"{attribute} = {self.constant(field.default.cls.__name__, field.default.cls)}()")
        else:
            self.line(f"{attribute} = {field.default!r}")

    def value(self, type_: Type, target: str, nullable: bool, field: str, *, tagged: bool = False) -> None:
        if isinstance(type_, ListOf):
            self.array(type_.element, target, nullable, field)
        elif isinstance(type_, type):
            self.part(type_, target, nullable, tagged)
        elif type_ in FIXED:
            self.fixed(FIXED[type_], target)
        else:
            self.slice(type_, target, nullable, field)

    def part(self, cls: type, target: str, nullable: bool, tagged: bool) -> None:
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
        """Read a length or count. Returns its variable: -1 (or less) for null."""
        size = self.name("n")
        if not self.flexible:
            self.fixed(form, size)
            self.flush()
            return size
        # Nearly always one byte, which then belongs to the run of fixed-size values before it.
        self.fixed("B", size)
        self.line(f"if {size} > 127:")
        self.depth += 1
        self.varint(size, "string_length" if short else "varint", again=True)
        self.depth -= 1
        self.line(f"{size} -= 1")
        return size

    def varint(self, target: str, function: str = "varint", *, again: bool = False) -> None:
        """Read a number of variable length; `again`: from its first byte, which was read as a number of its own."""
        self.line(f"{target}, pos = {function}(buf, pos{' - 1' if again else ''})")

    def skip_tags(self) -> None:
        """Skip the tagged fields of a struct that defines none. The first byte of their count was read already."""
        self.line("pos = skip_tags(buf, pos - 1)")

    def null_or(self, size: str, target: str, nullable: bool, field: str) -> None:
        """Begin the branch in which the value of a length is not null; the caller ends it where the value is nullable."""
        if nullable:
            self.line(f"if {size} < 0:")
            self.line(f"    {target} = None")
            self.line("else:")
            self.depth += 1
        else:
            self.refuse(f"{size} < 0", field, "null is not allowed")

    def slice(self, type_: str, target: str, nullable: bool, field: str) -> None:
        size = self.length("h" if type_ == "string" else "i", type_ == "string")
        self.null_or(size, target, nullable, field)
        self.line(f"stop = pos + {size}")
        self.refuse("stop > end", field, "longer than the rest of the message")
        self.sliced(type_, target)
        self.line("pos = stop")
        if nullable:
            self.depth -= 1

    def sliced(self, type_: str, target: str) -> None:
        self.line(f"{target} = " + ('str(buf[pos:stop], "utf-8")' if type_ == "string" else "buf[pos:stop]"))

    def array(self, element: str | type, target: str, nullable: bool, field: str) -> None:
        size = self.length("i", short=False)
        self.null_or(size, target, nullable, field)
        least = max(1, _size_least(element, self.version, self.flexible))
        self.refuse(f"{size} > (end - pos) // {least}", field, "more elements than the rest of the message can hold")
        if self.elements_max is not None:
            self.line(f"elements_left -= {size}")
            self.refuse("elements_left < 0", field, f"more than {self.elements_max} elements in the request")
        if isinstance(element, str) and element in FIXED and element != "uuid":
            self.fixed_array(FIXED[element], size, target)
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

    def fixed_array(self, form: str, size: str, target: str) -> None:
        self.line(f"stop = pos + {size} * {struct.calcsize('>' + form)}")
        self.line(f'{target} = list(unpack(f">{{{size}}}{form}", buf[pos:stop]))')
        self.line("pos = stop")

    def tags(self, target: str, tagged: list[Field]) -> None:
        self.fixed("B", "tags")
        self.line("if tags:")
        self.depth += 1
        if not tagged:
            self.skip_tags()
            self.depth -= 1
            return
        count, tag, last, size, stop = (self.name(word) for word in ("count", "tag", "last", "size", "stop"))
        self.varint(count, again=True)
        self.refuse(f"{count} > (end - pos) // 2", "tagged fields", "more than the rest of the message can hold")
        self.refuse(f"{count} > {TAGS_MAX}", "tagged fields", f"more than {TAGS_MAX}")
        self.line(f"{last} = -1")
        self.line(f"for _ in range({count}):")
        self.depth += 1
        self.varint(tag)
        self.refuse(f"{tag} <= {last}", "tagged fields", "not in ascending order")
        self.line(f"{last} = {tag}")
        self.varint(size)
        self.line(f"{stop} = pos + {size}")
        self.refuse(f"{stop} > end", "tagged fields", "longer than the rest of the message")
        branch = "if"
        for field in tagged:
            self.line(f"{branch} {tag} == {field.tag}:")
            branch = "elif"
            self.depth += 1
            self.value(field.type, self.attribute(target, field), self.version in field.nullable, field.name, tagged=True)
            self.refuse(f"pos != {stop}", field.name, "its bytes are not as many as its size says")
            self.depth -= 1
        self.line("else:")
        self.line(f"    pos = {stop}")
        self.depth -= 2


class EncoderSource(Source):
    """`run(message, parts)`: append the message to `parts`."""

    NEW_OUT = "bytearray()"

    def function(self) -> list[str]:
        self.struct(self.cls, "message")
        self.flush()
        out = f"    out = {self.NEW_OUT}"
        return ["def run(message, parts):", out, *self.lines, "    if out:", "        parts.append(out)"]

    def flush(self) -> None:
        if not self.run:
            return
        layout = self.layout()
        values = ", ".join(value for form, value in self.run if form != "x")
        self.run = []
        self.write(f"{self.constant('pack', layout)}({values})" if values else repr(bytes(layout.size)))

    def write(self, expression: str) -> None:
        """Write a bytes expression."""
        self.line(f"out += {expression}")

    def struct(self, cls: type, source: str) -> None:
        tagged = []
        for field in definition_of(cls).fields:
            attribute = f"{source}.{field.name}"
            if self.version not in field.versions:
                if not field.ignorable:
                    self.line(f"if {self.differs(field, attribute)}:")
                    why = f"{self.definition.name}: this version cannot carry {field.name}"
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
                return f"{attribute} is None or len({attribute}) > 0" if field.nullable.last >= 0 else f"len({attribute}) > 0"
        if isinstance(field.type, type):
            empty = self.constant("empty_" + field.type.__name__, field.type())
            if field.default is None:
                optional = field.nullable.last >= 0
                return f"{attribute} is not None" + ("" if optional else f" and {attribute} != {empty}")
            return f"{attribute} != {empty}"
        if field.type == "uuid":
            return f"{attribute} != {self.constant('ZERO_UUID', ZERO_UUID)}"
        return f"{attribute} != {field.default!r}"

    def value(self, type_: Type, source: str, nullable: bool, *, tagged: bool = False) -> None:
        if isinstance(type_, ListOf):
            self.array(type_.element, source, nullable)
        elif isinstance(type_, type):
            self.part(type_, source, nullable, tagged)
        elif type_ in FIXED:
            self.fixed(FIXED[type_], source)
        elif type_ == "string":
            self.string(source, nullable)
        else:
            self.buffer(type_, source, nullable)

    def part(self, cls: type, source: str, nullable: bool, tagged: bool) -> None:
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
        self.depth += 1
        self.write(repr(b"\x00" if self.flexible else struct.pack(form, -1)))
        self.depth -= 1
        self.line("else:")
        self.depth += 1

    def length(self, size: str, form: str) -> None:
        if not self.flexible:
            self.fixed(form, size)
            return
        self.line(f"if {size} < 127:")
        self.line(f"    out.append({size} + 1)")
        self.line("else:")
        self.line(f"    write_varint(out, {size} + 1)")

    def string(self, source: str, nullable: bool) -> None:
        text, encoded, size = self.name("text"), self.name("encoded"), self.name("n")
        self.line(f"{text} = {source}")
        if nullable:
            self.null(text, ">h")
        self.line(f"{encoded} = {text}.encode()")
        self.line(f"{size} = len({encoded})")
        self.line(f"if {size} > {STRING_BYTES_MAX}:")
        self.line(f"    string_too_long({size})")
        self.length(size, "h")
        self.write(encoded)
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
            self.write(value)
        if nullable:
            self.depth -= 1

    def array(self, element: str | type, source: str, nullable: bool) -> None:
        items, size = self.name("items"), self.name("n")
        self.line(f"{items} = {source}")
        if nullable:
            self.null(items, ">i")
        self.line(f"{size} = len({items})")
        self.length(size, "i")
        if isinstance(element, str) and element in FIXED and element != "uuid":
            self.fixed_array(FIXED[element], items, size)
        else:
            item = self.name("item")
            self.line(f"for {item} in {items}:")
            self.depth += 1
            before = len(self.lines)
            if isinstance(element, type):
                self.struct(element, item)
            else:
                self.value(element, item, nullable=False)
            self.flush()
            if len(self.lines) == before:
                self.line("pass")
            self.depth -= 1
        if nullable:
            self.flush()
            self.depth -= 1

    def fixed_array(self, form: str, items: str, size: str) -> None:
        self.write(f'pack_array(f">{{{size}}}{form}", *{items})')

    def tags(self, source: str, tagged: list[Field]) -> None:
        if not tagged:
            self.fixed("x", "")
            return
        flags = []
        for field in sorted(tagged, key=lambda field: field.tag or 0):
            flag = self.name("has")
            # A nullable tagged struct is always written: Kafka reads a missing one as an empty one, not as null.
            always = isinstance(field.type, type) and self.version in field.nullable
            self.line(f"{flag} = {always or self.differs(field, f'{source}.{field.name}')}")
            flags.append((flag, field))
        self.line(f"if {' or '.join(flag for flag, _ in flags)}:")
        self.depth += 1
        count = " + ".join(f"({flag} and 1 or 0)" for flag, _ in flags)
        self.line(f"write_varint(out, {count})")
        around = self.name("around")
        for flag, field in flags:
            self.line(f"if {flag}:")
            self.depth += 1
            self.line(f"{around} = out")
            self.line(f"out = {self.NEW_OUT}")
            self.value(field.type, f"{source}.{field.name}", self.version in field.nullable, tagged=True)
            self.line(f"write_varint({around}, {field.tag})")
            self.line(f"write_varint({around}, len(out))")
            self.append_out(around)
            self.line(f"out = {around}")
            self.depth -= 1
        self.depth -= 1
        self.line("else:")
        self.line("    out.append(0)")

    def append_out(self, around: str) -> None:
        self.line(f"{around} += out")


def _size_least(type_: Type, version: int, flexible: bool) -> int:
    """The fewest bytes a value can take."""
    if isinstance(type_, ListOf):
        return 1 if flexible else 4
    if isinstance(type_, str):
        if type_ in FIXED:
            return struct.calcsize(">" + FIXED[type_])
        return 1 if flexible else 2 if type_ == "string" else 4
    definition: Definition = definition_of(type_)
    total = 1 if flexible else 0
    for field in definition.fields:
        if version not in field.versions or (flexible and version in field.tagged):
            continue
        if isinstance(field.type, type) and version in field.nullable:
            total += 1
        else:
            total += _size_least(field.type, version, flexible)
    return total
