"""Writing with `format("ottla")`: each row is a record, at least once, as with Spark's own Kafka sink.

A task has an idempotent producer of its own, so that a retried request stores its records once. A task or micro-batch that Spark
runs again writes its rows again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import DataType, StringType, StructType

from ottla.client.options import InvalidOption
from ottla.pipelines.data_source.sink_options import SinkOptions

if TYPE_CHECKING:
    import pyarrow as pa

    from ottla.client.blocking import Client
    from ottla.pipelines.producing import Packing
    from ottla.pipelines.registry_columns import Written
    from ottla.pipelines.values import Framed
    from ottla.types import ProducerIdAndEpoch

_BATCH_BYTES_MAX: Final = 128 * 1024
"""A topic may refuse larger ones."""
_TYPES: Final = {
    "key": ("binary", "string"),
    "value": ("binary", "string"),
    "headers": ("array<struct<key:string,value:binary>>",),
    "topic": ("string",),
    "partition": ("int",),
    "timestamp": ("timestamp", "bigint"),
}


@dataclass
class Sent(WriterCommitMessage):
    records: int


@dataclass(frozen=True)
class _Rows:
    """How rows are written. Spark pickles it to tasks."""

    options: SinkOptions
    encodings: Mapping[str, Written]
    """Of the key and the value, if they have schemas."""

    @classmethod
    def of(cls, options: SinkOptions, schema: StructType) -> _Rows:
        """InvalidOption if these columns cannot be written."""
        if "value" not in schema.names:
            raise InvalidOption("columns", ", ".join(schema.names), "a record has a column value")
        if "topic" not in schema.names and options.topic is None:
            raise InvalidOption("topic", "", "it is the topic to write to, unless a column topic names it")
        encodings: dict[str, Written] = {}
        for field in schema.fields:
            framed = {"key": options.key, "value": options.value}.get(field.name)
            if framed is not None:
                encodings[field.name] = _encoding(field.name, framed, field.dataType)
            elif (given := field.dataType.simpleString()) not in _TYPES.get(field.name, ()):
                known = ", ".join(f"{name} {' or '.join(kinds)}" for name, kinds in _TYPES.items())
                raise InvalidOption("columns", f"{field.name} {given}", f"a record has {known}")
        return cls(options, encodings)

    def write(self, batches: Iterator[pa.RecordBatch]) -> Sent:
        from ottla.client.blocking import Client
        from ottla.client.transactions import idempotent_producer
        from ottla.client.transactions import produce as send

        packings: dict[str, Packing] = {}
        count = 0
        with Client(self.options.client) as client:
            producer: ProducerIdAndEpoch | None = None
            for batch in batches:
                count += batch.num_rows
                for topic, rows in self._by_topic(batch):
                    if producer is None:
                        producer = idempotent_producer(client)
                    if topic not in packings:
                        packings[topic] = self._packing(client, topic, producer)
                    for partition, full in packings[topic].add(self._records(rows)):
                        send(client, topic, partition, full)
            for topic, packing in packings.items():
                for partition, last in packing.finish():
                    send(client, topic, partition, last)
        return Sent(count)

    def _by_topic(self, batch: pa.RecordBatch) -> Iterator[tuple[str, pa.RecordBatch]]:
        """The option wins over the column, as in Spark's Kafka sink."""
        import pyarrow.compute as pc

        if self.options.topic is not None:
            yield self.options.topic, batch
            return
        topics = batch.column("topic")
        for topic in pc.unique(topics).to_pylist():
            if not topic:
                raise ValueError("a row has no topic; give the option topic, or fill the column")
            yield topic, batch.filter(pc.equal(topics, topic))

    def _packing(self, client: Client, topic: str, producer: ProducerIdAndEpoch) -> Packing:
        from ottla.pipelines.producing import Packing
        from ottla.records.column_writer import BatchWriter

        def writer_of(partition: int) -> BatchWriter:
            return BatchWriter(
                batch_bytes_max=_BATCH_BYTES_MAX,
                codec=self.options.codec,
                producer_id=producer.producer_id,
                producer_epoch=producer.producer_epoch,
                base_sequence=0,
            )

        return Packing(topic, len(client.topic(topic, create=True).partitions), writer_of)

    def _records(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """The rows as `Packing` takes them."""
        import pyarrow as pa

        given = {name: rows.column(name) for name in rows.schema.names if name != "topic"}
        named: dict[str, bytes] = {}
        for name, written in self.encodings.items():
            given[name] = _encoded(given[name], written)
            if written.header is not None:
                named[name] = written.header
        if named:
            given["headers"] = _with_headers(given, named)
        if "timestamp" in given and pa.types.is_timestamp(given["timestamp"].type):
            zone = given["timestamp"].type.tz
            given["timestamp"] = given["timestamp"].cast(pa.timestamp("ms", zone), safe=False).cast(pa.int64())
        given.setdefault("key", pa.nulls(rows.num_rows, pa.binary()))
        return pa.RecordBatch.from_pydict(given)


class OttlaWriter(DataSourceArrowWriter):
    """A batch query that writes."""

    def __init__(self, options: SinkOptions, schema: StructType) -> None:
        self._rows = _Rows.of(options, schema)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return self._rows.write(iterator)


class OttlaStreamWriter(DataSourceStreamArrowWriter):
    """A streaming query that writes."""

    def __init__(self, options: SinkOptions, schema: StructType) -> None:
        self._rows = _Rows.of(options, schema)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return self._rows.write(iterator)


def _encoding(column: str, framed: Framed, kind: DataType) -> Written:
    """How a column is written. The schema is registered, or looked up. InvalidOption."""
    from ottla.pipelines.failure import PipelineError, Place
    from ottla.pipelines.registry_columns import fields_of, written_schema
    from ottla.schemas.model import JSON

    place = Place("format(ottla)", 0)
    option = "registry.key.subject" if column == "key" else "registry.subject"
    try:
        written = written_schema(framed, place)
        fields = [] if written.schema.schema_type == JSON else fields_of(written.schema, place)
    except PipelineError as error:
        raise InvalidOption(option, framed.subject, str(error)) from None
    if written.schema.schema_type == JSON:
        if not isinstance(kind, StringType):
            raise InvalidOption("columns", f"{column} {kind.simpleString()}", "JSON is text: to_json makes it of a struct")
        return written
    if not isinstance(kind, StructType):
        raise InvalidOption("columns", f"{column} {kind.simpleString()}", f"it is a struct with the fields {', '.join(fields)}")
    absent = [name for name in fields if name not in kind.names]
    if absent:
        raise InvalidOption("columns", f"{column} {kind.simpleString()}", f"{framed.subject} has the field {absent[0]} too")
    return written


def _encoded(column: pa.Array, written: Written) -> pa.Array:
    import pyarrow as pa
    import pyarrow.compute as pc

    from ottla.pipelines.registry_columns import encode_rows
    from ottla.schemas.model import JSON

    if written.schema.schema_type != JSON:
        return encode_rows(column, written.schema, written.prefix)
    texts = column.cast(pa.binary())
    return pc.binary_join_element_wise(pa.scalar(written.prefix, pa.binary()), texts, pa.scalar(b"", pa.binary()))


def _with_headers(columns: Mapping[str, pa.Array], named: Mapping[str, bytes]) -> pa.Array:
    """The headers of the rows, and those that name the schemas of keys and values that are not null."""
    import pyarrow as pa

    from ottla.schemas.framing import KEY_HEADER, VALUE_HEADER

    names = {"key": KEY_HEADER, "value": VALUE_HEADER}
    given = columns.get("headers")
    rows = [list(each or ()) for each in given.to_pylist()] if given is not None else [[] for _ in range(len(columns["value"]))]
    for column, header in named.items():
        for row, present in zip(rows, columns[column].is_valid().to_pylist(), strict=True):
            if present:
                row.append({"key": names[column], "value": header})
    return pa.array(rows, pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])))
