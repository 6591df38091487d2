"""Columns of Avro values in Arrow's layout, without importing Arrow. Compiled.

1. Every column has as many rows as the column or struct that holds it, null ones included.
2. Validity is one bit per row, lowest first. Offsets are int32, numbers little-endian.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from librt.strings import BytesWriter, write_i32_le

from ottla.records.columns import BytesColumn

if TYPE_CHECKING:
    from mypy_extensions import i64


class Column:
    """A nullable column."""

    def __init__(self) -> None:
        self.rows: i64 = 0
        self.nulls: i64 = 0
        self._bits: i64 = 0
        self._validity = BytesWriter()

    def add_null(self) -> None:
        raise NotImplementedError

    def mark(self, present: bool) -> None:
        """Count a row, after its value was written."""
        if present:
            self._bits |= 1 << (self.rows & 7)
        else:
            self.nulls += 1
        self.rows += 1
        if self.rows & 7 == 0:
            self._validity.append(self._bits)
            self._bits = 0

    def validity(self) -> bytes | None:
        """None if nothing is null."""
        if self.nulls == 0:
            return None
        found: bytes = self._validity.getvalue()
        if self.rows & 7 != 0:
            last: int = self._bits
            found += bytes([last])
        return found


class NullColumn(Column):
    """Nothing but nulls."""

    def add_null(self) -> None:
        self.mark(False)


class NumberColumn(Column):
    """Values of so many bytes each, which the caller writes to `data` before `mark`."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.data = BytesWriter()
        self._zeros = bytes(width)

    def add_null(self) -> None:
        self.data.write(self._zeros)
        self.mark(False)


class BooleanColumn(Column):
    def __init__(self) -> None:
        super().__init__()
        self._data = BytesWriter()
        self._values: i64 = 0

    def add(self, value: bool) -> None:
        if value:
            self._values |= 1 << (self.rows & 7)
        self._end_row(True)

    def add_null(self) -> None:
        self._end_row(False)

    def _end_row(self, present: bool) -> None:
        if self.rows & 7 == 7:
            self._data.append(self._values)
            self._values = 0
        self.mark(present)

    def data(self) -> bytes:
        found: bytes = self._data.getvalue()
        if self.rows & 7 != 0:
            last: int = self._values
            found += bytes([last])
        return found


class TextColumn(Column):
    """Strings or bytes."""

    def __init__(self) -> None:
        super().__init__()
        self.texts = BytesColumn()

    def add(self, source: bytes, start: i64, end: i64) -> None:
        self.texts.add(source, start, end)
        self.rows += 1

    def add_null(self) -> None:
        self.texts.add(b"", -1, -1)
        self.rows += 1
        self.nulls += 1


class ListColumn(Column):
    """Arrays, or maps as keys and values: the entries of all rows in the columns of `parts`."""

    def __init__(self, parts: list[Column]) -> None:
        super().__init__()
        self.parts = parts
        self._first = parts[0]
        self._offsets = BytesWriter()
        write_i32_le(self._offsets, 0)

    def end(self) -> None:
        """End a row: it has the entries added since the last one."""
        self._add_offset()
        self.mark(True)

    def add_null(self) -> None:
        self._add_offset()
        self.mark(False)

    def _add_offset(self) -> None:
        entries: int = self._first.rows
        write_i32_le(self._offsets, entries)

    def offsets(self) -> bytes:
        return self._offsets.getvalue()


class StructColumn(Column):
    """Records: one column for each field."""

    def __init__(self, fields: list[Column]) -> None:
        super().__init__()
        self.fields = fields

    def add_null(self) -> None:
        for field in self.fields:
            field.add_null()
        self.mark(False)

    def add_empty(self) -> None:
        """Add a row that is there, and of which every field is null."""
        for field in self.fields:
            field.add_null()
        self.mark(True)
