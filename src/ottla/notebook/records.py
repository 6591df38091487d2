"""Records that were read, decoded as the filter language decodes them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, overload

from ottla.cli.formats import Incoming
from ottla.filters.record import decoded
from ottla.notebook.html import needed, table_html

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_COLUMNS = ("partition", "offset", "time", "key", "value", "headers")


def _readable(data: bytes | None) -> Any:
    """JSON objects and arrays as such, other UTF-8 as text, the rest as bytes."""
    try:
        return None if data is None else decoded(data.decode("utf-8"))
    except UnicodeDecodeError:
        return data


@dataclass(frozen=True, slots=True)
class Record:
    topic: str
    partition: int
    offset: int
    timestamp_ms: int | None
    raw_key: bytes | None
    raw_value: bytes | None
    raw_headers: tuple[tuple[str, bytes | None], ...]

    @classmethod
    def of(cls, read: Incoming) -> Record:
        headers = tuple((name, value) for name, value in read.headers)
        return cls(read.topic, read.partition, read.offset, read.timestamp_ms, read.key, read.value, headers)

    @property
    def key(self) -> Any:
        return _readable(self.raw_key)

    @property
    def value(self) -> Any:
        return _readable(self.raw_value)

    @property
    def headers(self) -> dict[str, Any]:
        """By name; of several of a name it is the last."""
        return {name: _readable(value) for name, value in self.raw_headers}

    @property
    def time(self) -> datetime | None:
        try:
            return None if self.timestamp_ms is None else _EPOCH + timedelta(milliseconds=self.timestamp_ms)
        except OverflowError:
            return None

    def _repr_html_(self) -> str:
        return Records([self], f"{self.topic}-{self.partition}, offset {self.offset}")._repr_html_()


class Records(Sequence[Record]):
    """Records in order. `summary` says how they were found, and whether that was all; `scanned` the same as a document."""

    def __init__(self, records: Sequence[Record], summary: str, scanned: dict[str, Any] | None = None) -> None:
        self._records = list(records)
        self.summary = summary
        self.scanned = scanned or {}

    @overload
    def __getitem__(self, index: int) -> Record: ...
    @overload
    def __getitem__(self, index: slice) -> Records: ...
    def __getitem__(self, index: int | slice) -> Record | Records:
        if isinstance(index, slice):
            return Records(self._records[index], self.summary, self.scanned)
        return self._records[index]

    def __len__(self) -> int:
        return len(self._records)

    def __repr__(self) -> str:
        return f"<{len(self)} records: {self.summary}>"

    def _repr_html_(self) -> str:
        topics = len({record.topic for record in self}) > 1
        columns = ("topic", *_COLUMNS) if topics else _COLUMNS
        rows = ([getattr(record, column) for column in columns] for record in self)
        return table_html(self.summary, columns, rows, len(self))

    def to_arrow(self) -> Any:
        """A table of pyarrow. Keys and values are text if all are UTF-8, else binary."""
        pa = needed("pyarrow", "to_arrow()")
        header = pa.struct([("name", pa.string()), ("value", pa.binary())])
        return pa.table(
            {
                "topic": pa.array([each.topic for each in self], pa.string()),
                "partition": pa.array([each.partition for each in self], pa.int32()),
                "offset": pa.array([each.offset for each in self], pa.int64()),
                "timestamp": pa.array([each.timestamp_ms for each in self], pa.timestamp("ms", tz="UTC")),
                "key": _texts_or_bytes(pa, [each.raw_key for each in self]),
                "value": _texts_or_bytes(pa, [each.raw_value for each in self]),
                "headers": pa.array(
                    [[{"name": name, "value": value} for name, value in each.raw_headers] for each in self], pa.list_(header)
                ),
            }
        )

    def to_pandas(self, *, fields: bool = False) -> Any:
        """A data frame of pandas with decoded keys, values and headers. With `fields` each field of JSON values is a column."""
        pd = needed("pandas", "to_pandas()")
        times = pd.Series([each.timestamp_ms for each in self], dtype="Int64")
        frame = pd.DataFrame(
            {
                "topic": pd.Series([each.topic for each in self], dtype="object"),
                "partition": pd.Series([each.partition for each in self], dtype="int32"),
                "offset": pd.Series([each.offset for each in self], dtype="int64"),
                "timestamp": pd.to_datetime(times, unit="ms", utc=True, errors="coerce"),
                "key": pd.Series([each.key for each in self], dtype="object"),
                "value": pd.Series([each.value for each in self], dtype="object"),
                "headers": pd.Series([each.headers for each in self], dtype="object"),
            }
        )
        if not fields:
            return frame
        values = pd.json_normalize([each if isinstance(each, dict) else {} for each in frame["value"]])
        return pd.concat([frame.drop(columns="value"), values.set_index(frame.index).add_prefix("value.")], axis=1)


def _texts_or_bytes(pa: Any, values: list[bytes | None]) -> Any:
    try:
        return pa.array([None if value is None else value.decode() for value in values], pa.string())
    except UnicodeDecodeError:
        return pa.array(values, pa.binary())
