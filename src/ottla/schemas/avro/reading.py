"""Reads Avro values of a writer's schema into columns of a reader's. Compiled.

A step reads one value of a writer's type and adds a row to its column, or skips it. `resolution` builds the steps of two schemas.

1. A value ends exactly where its bytes end. One that does not, or that does not fit, is refused with a reason.
2. A refused value is a row without fields, and changes no other row: before a value is read, a trial has shown that it can be,
   unless none of its batch was refused.
3. A value claims no more entries than it has bytes: memory is bounded by what was received.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from librt.strings import (
    read_f32_le,
    read_f64_le,
    read_i32_be,
    read_i32_le,
    write_f32_le,
    write_f64_le,
    write_i32_le,
    write_i64_le,
)

from ottla.errors import MalformedInput
from ottla.records.walk import varlong_at, varlong_end
from ottla.schemas.avro.columns import BooleanColumn, Column, ListColumn, NumberColumn, StructColumn, TextColumn

if TYPE_CHECKING:
    from mypy_extensions import i64

SKIPPED_DEPTH_MAX: Final = 200
"""Of records within themselves that a reader does not want."""
_INT32_MIN: Final = -(2**31)
_INT32_MAX: Final = 2**31 - 1
_NO_ID: Final = -(2**40)
_TOO_SHORT: Final = "the value ends too early"


class Input:
    """The bytes of a batch, where its present value ends, and how far it is read."""

    def __init__(self, data: bytes, careful: bool = False) -> None:
        self.data = data
        self.position: i64 = 0
        self.end: i64 = 0
        self.depth: i64 = 0
        self.careful = careful
        """Whether strings are checked one by one."""


def long_of(source: Input) -> i64:
    data = source.data
    at: i64 = source.position
    b: i64 = data[at]
    if b < 128:
        source.position = at + 1
    elif data[at + 1] < 128:
        b += (data[at + 1] << 7) - 128
        source.position = at + 2
    else:
        source.position = varlong_end(data, at)
        return varlong_at(data, at)
    if b & 1 != 0:
        return ~(b >> 1)
    return b >> 1


def size_of(source: Input) -> i64:
    """A length, which the rest of the value has."""
    size: i64 = long_of(source)
    if size < 0:
        raise MalformedInput("a length is negative")
    if size > source.end - source.position:
        raise MalformedInput(_TOO_SHORT)
    return size


def entries_of(source: Input) -> i64:
    """The number of entries of the next block of an array or map; 0 ends it."""
    count: i64 = long_of(source)
    if count < 0:
        count = -count
        long_of(source)  # the block's size
    if count < 0 or count > source.end - source.position:
        raise MalformedInput(_TOO_SHORT)
    return count


class Step:
    """Reads one value."""

    def read(self, source: Input) -> None:
        raise NotImplementedError


class Refusal(Step):
    """Values that the reader's schema has no place for."""

    def __init__(self, reason: str) -> None:
        self.reason = reason

    def read(self, source: Input) -> None:
        raise MalformedInput(self.reason)


# Into columns


class ReadNull(Step):
    def __init__(self, column: Column) -> None:
        self._column = column

    def read(self, source: Input) -> None:
        self._column.add_null()


class ReadBoolean(Step):
    def __init__(self, column: BooleanColumn) -> None:
        self._column = column

    def read(self, source: Input) -> None:
        value: i64 = source.data[source.position]
        source.position += 1
        if value > 1:
            raise MalformedInput(f"{value} is no boolean")
        self._column.add(value == 1)


class ReadInt(Step):
    def __init__(self, column: NumberColumn) -> None:
        self._column = column

    def read(self, source: Input) -> None:
        value: i64 = long_of(source)
        if value < _INT32_MIN or value > _INT32_MAX:
            raise MalformedInput(f"{value} is no int")
        number: int = value
        write_i32_le(self._column.data, number)
        self._column.mark(True)


class ReadLong(Step):
    """`factor` brings the unit of a time to microseconds."""

    def __init__(self, column: NumberColumn, factor: int = 1) -> None:
        self._column = column
        self._factor: i64 = factor
        self._max: i64 = (2**63 - 1) // factor

    def read(self, source: Input) -> None:
        value: i64 = long_of(source)
        if value > self._max or value < -self._max - 1:
            raise MalformedInput(f"{value} is no time in microseconds")
        write_i64_le(self._column.data, value * self._factor)
        self._column.mark(True)


class ReadFloat(Step):
    def __init__(self, column: NumberColumn, is_integer: bool) -> None:
        self._column = column
        self._is_integer = is_integer

    def read(self, source: Input) -> None:
        if self._is_integer:
            value: i64 = long_of(source)
            write_f32_le(self._column.data, float(value))
        else:
            write_f32_le(self._column.data, read_f32_le(source.data, source.position))
            source.position += 4
        self._column.mark(True)


class ReadDouble(Step):
    """`size` is that of the writer's float or double; 0 is an int or long."""

    def __init__(self, column: NumberColumn, size: int) -> None:
        self._column = column
        self._size: i64 = size

    def read(self, source: Input) -> None:
        if self._size == 8:
            write_f64_le(self._column.data, read_f64_le(source.data, source.position))
        elif self._size == 4:
            write_f64_le(self._column.data, read_f32_le(source.data, source.position))
        else:
            value: i64 = long_of(source)
            write_f64_le(self._column.data, float(value))
        source.position += self._size
        self._column.mark(True)


class ReadBytes(Step):
    def __init__(self, column: TextColumn, is_text: bool) -> None:
        self._column = column
        self._is_text = is_text

    def read(self, source: Input) -> None:
        size: i64 = size_of(source)
        start: i64 = source.position
        if source.careful and self._is_text:
            source.data[start : start + size].decode()
        self._column.add(source.data, start, start + size)
        source.position = start + size


class ReadFixed(Step):
    def __init__(self, column: TextColumn, size: int) -> None:
        self._column = column
        self._size: i64 = size

    def read(self, source: Input) -> None:
        start: i64 = source.position
        if self._size > source.end - start:
            raise MalformedInput(_TOO_SHORT)
        self._column.add(source.data, start, start + self._size)
        source.position = start + self._size


class ReadUuid(Step):
    """A fixed of 16 bytes as text."""

    def __init__(self, column: TextColumn) -> None:
        self._column = column

    def read(self, source: Input) -> None:
        digits = source.data[source.position : source.position + 16].hex()
        if len(digits) != 32:
            raise MalformedInput(_TOO_SHORT)
        text = f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}".encode()
        self._column.add(text, 0, len(text))
        source.position += 16


class ReadEnum(Step):
    """`symbols` are what the reader has for the writer's; None has nothing."""

    def __init__(self, column: TextColumn, symbols: list[bytes | None]) -> None:
        self._column = column
        self._symbols = symbols

    def read(self, source: Input) -> None:
        index: i64 = long_of(source)
        if index < 0 or index >= len(self._symbols):
            raise MalformedInput(f"{index} is no symbol of the enum")
        symbol = self._symbols[index]
        if symbol is None:
            raise MalformedInput("the reader's enum does not have the symbol")
        self._column.add(symbol, 0, len(symbol))


class ReadDecimal(Step):
    """`size` is that of a fixed; 0 is bytes. `factor` brings the writer's scale to the reader's."""

    def __init__(self, column: NumberColumn, size: int, precision: int, factor: int) -> None:
        self._column = column
        self._size: i64 = size
        self._limit: int = 10**precision
        self._factor = factor

    def read(self, source: Input) -> None:
        size: i64 = self._size
        if size == 0:
            size = size_of(source)
        elif size > source.end - source.position:
            raise MalformedInput(_TOO_SHORT)
        number = int.from_bytes(source.data[source.position : source.position + size], "big", signed=True) * self._factor
        if number >= self._limit or number <= -self._limit:
            raise MalformedInput("a decimal has more digits than its precision")
        self._column.data.write(number.to_bytes(16, "little", signed=True))
        self._column.mark(True)
        source.position += size


class ReadArray(Step):
    def __init__(self, column: ListColumn, item: Step) -> None:
        self._column = column
        self._item = item

    def read(self, source: Input) -> None:
        item = self._item
        while True:
            left: i64 = entries_of(source)
            if left == 0:
                break
            while left > 0:
                item.read(source)
                if source.position > source.end:
                    raise MalformedInput(_TOO_SHORT)
                left -= 1
        self._column.end()


class ReadMap(Step):
    def __init__(self, column: ListColumn, key: Step, value: Step) -> None:
        self._column = column
        self._key = key
        self._value = value

    def read(self, source: Input) -> None:
        while True:
            left: i64 = entries_of(source)
            if left == 0:
                break
            while left > 0:
                self._key.read(source)
                self._value.read(source)
                if source.position > source.end:
                    raise MalformedInput(_TOO_SHORT)
                left -= 1
        self._column.end()


class ReadUnion(Step):
    """`branches` are those of the writer."""

    def __init__(self, branches: list[Step]) -> None:
        self._branches = branches

    def read(self, source: Input) -> None:
        index: i64 = long_of(source)
        if index < 0 or index >= len(self._branches):
            raise MalformedInput(f"{index} is no branch of the union")
        self._branches[index].read(source)


class ReadRecord(Step):
    """`steps` read the writer's fields in order, and then add the defaults of fields that it does not have."""

    def __init__(self, column: StructColumn, steps: list[Step]) -> None:
        self._column = column
        self._steps = steps

    def read(self, source: Input) -> None:
        for step in self._steps:
            step.read(source)
        self._column.mark(True)


class AddDefault(Step):
    """Reads the default of a field, encoded as a value of the field's own type."""

    def __init__(self, step: Step, encoded: bytes) -> None:
        self._step = step
        self._encoded = Input(encoded)
        self._encoded.end = len(encoded)

    def read(self, source: Input) -> None:
        self._encoded.position = 0
        self._step.read(self._encoded)


# Past them


class SkipLong(Step):
    def read(self, source: Input) -> None:
        long_of(source)


class SkipBytes(Step):
    def read(self, source: Input) -> None:
        size: i64 = size_of(source)
        source.position += size


class SkipFixed(Step):
    """A fixed number of bytes: also of a null, a boolean, a float or a double."""

    def __init__(self, size: int) -> None:
        self._size: i64 = size

    def read(self, source: Input) -> None:
        source.position += self._size


class SkipBlocks(Step):
    """An array or map, whose entries have these parts."""

    def __init__(self, parts: list[Step]) -> None:
        self._parts = parts

    def read(self, source: Input) -> None:
        while True:
            left: i64 = entries_of(source)
            if left == 0:
                return
            while left > 0:
                for part in self._parts:
                    part.read(source)
                if source.position > source.end:
                    raise MalformedInput(_TOO_SHORT)
                left -= 1


class SkipRecord(Step):
    def __init__(self) -> None:
        self.steps: list[Step] = []

    def read(self, source: Input) -> None:
        if source.depth >= SKIPPED_DEPTH_MAX:
            raise MalformedInput("records lie too deep within themselves")
        source.depth += 1
        for step in self.steps:
            step.read(source)
        source.depth -= 1


# Rows


class Values:
    """A column of bytes in Arrow's layout, from `first` on. `headers` are the schema headers of its rows, if they have any."""

    def __init__(
        self,
        data: bytes,
        offsets: bytes,
        validity: bytes | None,
        first: int,
        rows: int,
        headers: list[bytes | None] | None = None,
    ) -> None:
        self.data = data
        self._offsets = offsets
        self._validity = validity
        self._first: i64 = first
        self.rows: i64 = rows
        self.headers = headers

    def is_null(self, row: i64) -> bool:
        if self._validity is None:
            return False
        at: i64 = self._first + row
        byte: i64 = self._validity[at >> 3]
        return byte >> (at & 7) & 1 == 0

    def start(self, row: i64) -> i64:
        at: int = read_i32_le(self._offsets, (self._first + row) * 4)
        return at

    def value(self, row: int) -> bytes:
        start: i64 = self.start(row)
        end: i64 = self.start(row + 1)
        return self.data[start:end]


class Rows:
    """Reads values into a struct column.

    A value is read by the step of its prefix: what is before its payload, or its schema header; or by the step of `b""`, if the
    values have no schema id. `trial`, which is a step for each prefix too, has columns of its own, and is tried before.
    """

    def __init__(self, column: StructColumn, is_framed: bool, trial: dict[bytes, Step] | None) -> None:
        self.column = column
        self.refused: dict[int, str] = {}
        """The reason for each row that is refused."""
        self.steps: dict[bytes, Step] = {}
        self.unknown = b""
        """The prefix that `read` ended at, because it has no step."""
        self.row: i64 = 0
        self._is_framed = is_framed
        self._trial = trial

    def read(self, values: Values) -> bool:
        """Read on. Returns whether all rows are read. MalformedInput, IndexError: a value is bad; then the columns are spoilt."""
        trial = self._trial
        source = Input(values.data)
        tried = Input(values.data, True)
        headers = values.headers
        framed = self._is_framed
        found: Step | None = None if framed else self.steps[b""]
        prefix = b""
        last_id: i64 = _NO_ID
        schema_id: i64 = 0
        while self.row < values.rows:
            row: i64 = self.row
            if values.is_null(row):
                self.column.add_null()
                self.row += 1
                continue
            start: i64 = values.start(row)
            end: i64 = values.start(row + 1)
            payload: i64 = start
            if framed:
                header = None if headers is None else headers[row]
                if header is None and end - start >= 5 and values.data[start] == 0:
                    number: int = read_i32_be(values.data, start + 1)
                    schema_id = number
                    payload = start + 5
                    if schema_id != last_id:
                        prefix = values.data[start:payload]
                        found = self.steps.get(prefix)
                        last_id = schema_id
                else:
                    last_id = _NO_ID
                    if header is not None:
                        prefix = header
                    else:
                        # A GUID, or nothing that names a schema: then the first byte, or the few there are, say why.
                        if end - start >= 17 and values.data[start] == 1:
                            payload = start + 17
                        else:
                            payload = min(start + 4, end) if end - start < 5 else start + 1
                        prefix = values.data[start:payload]
                    found = self.steps.get(prefix)
                if found is None:
                    self.unknown = prefix
                    return False
            assert found is not None
            if isinstance(found, Refusal):
                self._refuse(row, found.reason)
                continue
            if trial is not None:
                reason = _trouble(tried, trial[prefix], payload, end)
                if reason is not None:
                    self._refuse(row, reason)
                    continue
            source.position = payload
            source.end = end
            found.read(source)
            if source.position != end:
                raise MalformedInput(_TOO_SHORT)
            self.row += 1
        return True

    def _refuse(self, row: i64, reason: str) -> None:
        self.refused[row] = reason
        self.column.add_empty()
        self.row += 1


def _trouble(source: Input, step: Step, start: i64, end: i64) -> str | None:
    """Why a value cannot be read."""
    source.position = start
    source.end = end
    source.depth = 0
    try:
        step.read(source)
    except MalformedInput as error:
        return f"not Avro of its schema: {error}"
    except IndexError:
        return f"not Avro of its schema: {_TOO_SHORT}"
    except UnicodeDecodeError:
        return "not Avro of its schema: a string is no UTF-8"
    if source.position > end:
        return f"not Avro of its schema: {_TOO_SHORT}"
    if source.position < end:
        return f"not Avro of its schema: {end - source.position} bytes after it"
    return None
