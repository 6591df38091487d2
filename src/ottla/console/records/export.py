"""Records as files: JSON lines, CSV, Parquet. Each form is a writer that is fed records and gives bytes when it has enough."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from typing import Any, Final, Protocol

from ottla.cli.failure import Failure
from ottla.cli.find.scan import Scan
from ottla.cli.formats import Format, Headers, Incoming, Writing, time_text
from ottla.console.records.choosing import takes_masked
from ottla.console.records.documents import Showing
from ottla.console.records.plan import Plan
from ottla.console.records.stream import Outlet

CHUNK: Final = "chunk"
"""The name of the event that holds bytes."""
_CHUNK_BYTES: Final = 64 << 10
_ROW_GROUP: Final = 20_000
_ROW_GROUP_BYTES: Final = 16 << 20


class Writer(Protocol):
    def add(self, record: Incoming) -> bytes:
        """Bytes to send, perhaps none yet."""
        ...

    def end(self) -> bytes: ...


class JsonLines:
    """Lines that `ottla produce --format json` reads."""

    def __init__(self) -> None:
        self._writing = Writing(Format.JSON)

    def add(self, record: Incoming) -> bytes:
        return self._writing.line(record)

    def end(self) -> bytes:
        return b""


class Csv:
    """Bytes that are no text are in hex, behind 0x."""

    def __init__(self) -> None:
        self._out = io.StringIO()
        self._rows = csv.writer(self._out, lineterminator="\r\n")
        self._rows.writerow(["topic", "partition", "offset", "time", "key", "value", "headers"])

    def add(self, record: Incoming) -> bytes:
        headers = json.dumps([[name, _text(value)] for name, value in record.headers], ensure_ascii=False)
        self._rows.writerow(
            [
                record.topic,
                record.partition,
                record.offset,
                time_text(record.timestamp_ms),
                _text(record.key),
                _text(record.value),
                headers if record.headers else "",
            ]
        )
        return self._drain()

    def end(self) -> bytes:
        return self._drain()

    def _drain(self) -> bytes:
        data = self._out.getvalue().encode("utf-8", "surrogatepass")
        self._out.seek(0)
        self._out.truncate()
        return data


def _text(data: bytes | None) -> str | None:
    if data is None:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return f"0x{data.hex()}"


class Parquet:
    """A row group for each so many records. Keys and values are binary."""

    def __init__(self) -> None:
        try:
            import pyarrow as pa
            import pyarrow.parquet as pq
        except ImportError:
            raise Failure(
                "Parquet needs pyarrow, which is not installed here", "pip install 'ottla[notebook]'", code="NOT_FOUND"
            ) from None
        header = pa.struct([("name", pa.string()), ("value", pa.binary())])
        self._pa = pa
        self._schema = pa.schema(
            [
                ("topic", pa.string()),
                ("partition", pa.int32()),
                ("offset", pa.int64()),
                ("timestamp", pa.timestamp("ms", tz="UTC")),
                ("key", pa.binary()),
                ("value", pa.binary()),
                ("headers", pa.list_(header)),
            ]
        )
        self._out = io.BytesIO()
        self._sent = 0
        self._writer = pq.ParquetWriter(_Tail(self._out), self._schema)
        self._records: list[Incoming] = []
        self._size_bytes = 0

    def add(self, record: Incoming) -> bytes:
        self._records.append(record)
        self._size_bytes += len(record.value or b"") + len(record.key or b"")
        if len(self._records) < _ROW_GROUP and self._size_bytes < _ROW_GROUP_BYTES:
            return b""
        self._write()
        return self._drain()

    def end(self) -> bytes:
        if self._records:
            self._write()
        self._writer.close()
        return self._drain()

    def _write(self) -> None:
        records, self._records, self._size_bytes = self._records, [], 0
        columns: list[list[Any]] = [
            [each.topic for each in records],
            [each.partition for each in records],
            [each.offset for each in records],
            [each.timestamp_ms for each in records],
            [each.key for each in records],
            [each.value for each in records],
            [_structs(each.headers) for each in records],
        ]
        arrays = [self._pa.array(column, field.type) for column, field in zip(columns, self._schema, strict=True)]
        self._writer.write_table(self._pa.Table.from_arrays(arrays, schema=self._schema))

    def _drain(self) -> bytes:
        data = self._out.getvalue()
        self._out.seek(0)
        self._out.truncate()
        return data


def _structs(headers: Headers) -> list[dict[str, Any]]:
    return [{"name": name, "value": value} for name, value in headers]


class _Tail(io.RawIOBase):
    """A file of which only the bytes since the last `drain` are kept, and that knows its position."""

    def __init__(self, out: io.BytesIO) -> None:
        self._out = out
        self._at = 0

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        size = self._out.write(data)
        self._at += size
        return size

    def tell(self) -> int:
        return self._at


WRITERS: Final[dict[str, tuple[str, Callable[[], Writer]]]] = {
    "jsonl": ("application/x-ndjson", JsonLines),
    "csv": ("text/csv; charset=utf-8", Csv),
    "parquet": ("application/vnd.apache.parquet", Parquet),
}
"""Media type and writer by the ending of the file."""


def export(scan: Scan, plan: Plan, showing: Showing, writer: Writer, limit: int | None, outlet: Outlet) -> None:
    """Send the file of all that the scan takes, in chunks."""
    waiting = bytearray()
    count = 0

    def look(_: Scan) -> None:
        outlet.check()

    scan.on_chunk = look
    outlet.scanned = scan.tally
    with scan:
        for record in scan:
            seen = showing.seen(record)
            if seen.masked and not takes_masked(plan.selection, seen):
                continue
            waiting += writer.add(seen.record)
            count += 1
            if len(waiting) >= _CHUNK_BYTES:
                outlet.send(CHUNK, bytes(waiting))
                waiting.clear()
            if count == limit:
                break
    waiting += writer.end()
    outlet.send(CHUNK, bytes(waiting))
