"""Values and keys with schemas of a registry: evolution, bad records, sinks, in Spark and in Arrow batches."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Producer

import ottla.testing
from ottla import pipelines as p
from ottla.client.schema_registry import RegistryOptions, SchemaRegistry
from ottla.client.schema_values import NotOfSchema, SchemaValues
from ottla.pipelines import encoding, registry_columns
from ottla.pipelines.failure import PipelineError, Place
from ottla.pipelines.values import Value
from ottla.schemas.framing import KEY_HEADER, VALUE_HEADER, write_id
from ottla.schemas.model import AVRO, JSON, PROTOBUF
from ottla.testing import Broker, Registry

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

HERE = Place(__file__, 1)
FIRST = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "int"}, {"name": "to", "type": "string"}]}
SECOND = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "to", "type": ["null", "string"], "default": None},
        {"name": "amount", "type": "double", "default": 1},
        {"name": "at", "type": ["null", {"type": "long", "logicalType": "timestamp-micros"}], "default": None},
        {"name": "day", "type": ["null", {"type": "int", "logicalType": "date"}], "default": None},
    ],
}
PROTO = 'syntax = "proto3"; message Order { int64 id = 1; string to = 2; %s }'


class World:
    """A registry and subjects of one test."""

    def __init__(self, url: str, prefix: str) -> None:
        self.url, self.prefix = url, prefix
        self.client = SchemaRegistry(RegistryOptions(url))
        self.values = SchemaValues(self.client)

    def register(self, subject: str, schema_type: str, schema: Any) -> str:
        name = f"{self.prefix}.{subject}"
        self.client.register(name, schema_type, schema if isinstance(schema, str) else json.dumps(schema))
        return name

    def encode(self, subject: str, document: Any, version: int | str = "latest") -> bytes:
        return self.values.encode(json.dumps(document), self.client.version(subject, version))

    def decode(self, data: bytes) -> Any:
        return json.loads(self.values.decode(data))


@pytest.fixture
def world(ottla_registry: Registry, spark: SparkSession, request: pytest.FixtureRequest) -> World:
    return World(ottla_registry.url, request.node.name.replace("[", "-").rstrip("]"))


def batch(value: p.Framed, data: list[bytes | None], headers: list[bytes | None] | None = None) -> list[Any]:
    """What the worker of a source makes of these values."""
    import pyarrow as pa
    from pyspark.sql.pandas.types import to_arrow_type
    from pyspark.sql.types import StructType

    reader = registry_columns.reader_schema(value, HERE)
    found = StructType.fromDDL(registry_columns.ddl(registry_columns.parse(reader, HERE), HERE))
    assert isinstance(found, StructType)
    target = to_arrow_type(found.add("bad", "string"), timezone="UTC")
    options = registry_columns.options_of(value, HERE)
    given = None if headers is None else pa.array(headers, pa.binary())
    found = registry_columns.decode_batch(pa.array(data, pa.binary()), options, reader, target, "bad", given)
    rows: list[Any] = found.to_pylist()
    return rows


def test_avro_of_several_versions_is_read_as_the_reader_s(world: World) -> None:
    subject = world.register("orders", AVRO, FIRST)
    world.register("orders", AVRO, SECOND)
    value = p.avro(subject=subject, registry=world.url)
    assert isinstance(value, p.Framed)
    old = world.encode(subject, {"id": 1, "to": "Ana"}, 1)
    new = world.encode(
        subject, {"id": 2**40, "to": None, "amount": 2.5, "at": {"long": 1_767_225_600_000_000}, "day": {"int": 20454}}
    )
    assert batch(value, [old, None, new, old]) == [
        {"id": 1, "to": "Ana", "amount": 1.0, "at": None, "day": None, "bad": None},
        None,
        {"id": 2**40, "to": None, "amount": 2.5, "at": datetime(2026, 1, 1, tzinfo=UTC), "day": date(2026, 1, 1), "bad": None},
        {"id": 1, "to": "Ana", "amount": 1.0, "at": None, "day": None, "bad": None},
    ]
    pinned = p.avro(subject=subject, version=1, registry=world.url)
    assert isinstance(pinned, p.Framed)
    assert "reader's int does not read the writer's long" in batch(pinned, [new])[0]["bad"], "a reader may be too old"


def test_bad_values_have_reasons_and_spoil_no_others(world: World) -> None:
    subject = world.register("orders", AVRO, FIRST)
    other = world.register("other", JSON, "{}")
    good = world.encode(subject, {"id": 1, "to": "Ana"})
    value = p.avro(subject=subject, registry=world.url)
    assert isinstance(value, p.Framed)
    data = [b"", b"{no id}", good[:-1], good + b"x", good, write_id(10_000_000) + b"x", world.encode(other, {}), good]
    found = batch(value, list(data))
    reasons = [row["bad"] for row in found]
    assert [each is None for each in reasons] == [False, False, False, False, True, False, False, True]
    assert "too few for a schema id" in reasons[0]
    assert "first byte is 123" in reasons[1]
    assert reasons[2] == "not Avro of its schema: the value ends too early"
    assert reasons[3] == "not Avro of its schema: 1 bytes after it"
    assert reasons[5] == "the registry has no schema 10000000"
    assert "is JSON, not AVRO" in reasons[6]
    assert found[4]["to"] == found[7]["to"] == "Ana"


def test_protobuf_of_several_versions_nested_and_of_other_messages(world: World) -> None:
    subject = world.register("orders", PROTOBUF, PROTO % "")
    more = "repeated string tags = 3; map<string, int32> counts = 4; Kind kind = 5; uint64 big = 6; "
    more += "optional int32 maybe = 7; Inner inner = 8;"
    rest = "enum Kind { A = 0; B = 1; } message Inner { double x = 1; } message Other { int32 a = 1; }"
    both = (PROTO % more).replace("message Order", 'import "google/protobuf/timestamp.proto"; message Order') + rest
    world.register("orders", PROTOBUF, both.replace("Inner inner = 8;", "Inner inner = 8; google.protobuf.Timestamp at = 9;"))
    value = p.protobuf(subject, registry=world.url)
    old = world.encode(subject, {"id": 1, "to": "Ana"}, 1)
    document = {
        "id": 2,
        "tags": ["x"],
        "counts": {"k": 3},
        "kind": "B",
        "big": 2**64 - 1,
        "inner": {"x": 1.5},
        "at": "2026-01-01T00:00:00Z",
    }
    new = world.encode(subject, document)
    found = batch(value, [old, new, new[:5] + b"\2\4" + b"\x08\1", new[:5] + b"\0\xff"])
    absent = {"maybe": None, "inner": None, "at": None, "bad": None}
    assert found[0] == {"id": 1, "to": "Ana", "tags": [], "counts": [], "kind": "A", "big": Decimal(0)} | absent
    assert found[1]["counts"] == [("k", 3)]
    assert (found[1]["kind"], found[1]["big"], found[1]["inner"]) == ("B", Decimal(2**64 - 1), {"x": 1.5})
    assert found[1]["at"] == datetime(2026, 1, 1, tzinfo=UTC)
    assert found[2]["bad"] == "the value is a Other, not a Order"
    assert "not Protobuf of its schema" in found[3]["bad"]


def test_a_header_names_the_schema_by_its_guid(world: World) -> None:
    subject = world.register("orders", AVRO, FIRST)
    value = p.avro(subject=subject, registry=world.url)
    assert isinstance(value, p.Framed)
    document = json.dumps({"id": 1, "to": "Ana"})
    header, payload = world.values.encode_for_header(document, world.client.version(subject))
    assert world.values.decode(header + payload) == document
    by_id = world.encode(subject, json.loads(document))
    unknown = b"\1" + bytes(16)
    found = batch(value, [payload, by_id, payload, payload, header + payload], [header, None, b"\1xx", unknown, None])
    row = {"id": 1, "to": "Ana"}
    assert [{name: each[name] for name in row} for each in (found[0], found[1], found[4])] == [row] * 3
    assert "no value of a schema registry" in found[2]["bad"]
    assert found[3]["bad"] == "the registry has no schema 00000000-0000-0000-0000-000000000000"
    proto = world.register("proto", PROTOBUF, (PROTO % "") + "message Other { int32 a = 1; }")
    header, payload = world.values.encode_for_header('{"id": "7"}', world.client.version(proto))
    assert len(header) == 18, "the message indexes are in the header too"
    [row] = batch(p.protobuf(proto, registry=world.url), [payload], [header])
    assert row == {"id": 7, "to": "", "bad": None}


def test_rows_are_written_with_the_framing(world: World) -> None:
    avro = p.avro(json.dumps(SECOND), subject=f"{world.prefix}.new", registry=world.url)
    assert isinstance(avro, p.Framed)
    row = {"id": 5, "to": "Ana", "amount": 2.5, "at": datetime(2026, 1, 1, tzinfo=UTC), "day": None}
    data = registry_columns.encode_row(avro, row, HERE)
    assert world.client.version(f"{world.prefix}.new").version == 1, "the schema is registered"
    assert batch(avro, [data]) == [row | {"bad": None}]
    proto = p.protobuf(world.register("proto", PROTOBUF, PROTO % "repeated string tags = 3;"), registry=world.url)
    assert world.decode(registry_columns.encode_row(proto, {"id": 5, "to": "Ana", "tags": ["x"]}, HERE)) == {
        "id": "5", "to": "Ana", "tags": ["x"],
    }  # fmt: skip


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({"subject": ""}, "no name of a subject"),
        ({"subject": "s", "version": 0}, "neither"),
        ({"subject": "s", "registry": {"urls": "x"}}, "unknown registry setting"),
        ({"subject": "s", "registry": "localhost:8081"}, "no address"),
        ({"subject": "never-registered"}, "40401|never-registered"),
    ],
)
def test_a_wrong_definition_says_what_to_do(world: World, arguments: dict[str, Any], reason: str) -> None:
    def read() -> None:
        value = p.avro(**({"registry": world.url} | arguments))
        assert isinstance(value, p.Framed)
        registry_columns.reader_schema(value, HERE)

    with pytest.raises(PipelineError, match=reason):
        read()


def test_a_pipeline_reads_and_writes_keys_and_values_of_every_type(
    world: World, spark: SparkSession, ottla_spark: SparkSession
) -> None:
    for name, schema_type, schema in (
        ("avro", AVRO, FIRST),
        ("json", JSON, {"type": "object", "properties": {"id": {"type": "integer"}, "to": {"type": "string"}}}),
        ("proto", PROTOBUF, PROTO % ""),
        ("key", AVRO, '"long"'),
    ):
        world.register(name, schema_type, schema)
    world.register("avro", AVRO, SECOND)
    prefix = world.prefix
    makers: dict[str, p.Framed] = {
        "json": p.json_schema(f"{prefix}.json", registry=world.url),
        "proto": p.protobuf(f"{prefix}.proto", registry=world.url),
        "avro": p.avro(subject=f"{prefix}.avro", registry=world.url),  # type: ignore[dict-item]
    }
    key = p.avro(subject=f"{prefix}.key", registry=world.url)
    sources = {
        name: p.source(name, value, key=key, columns=["offset"], name=f"source_{name}", dead_letter=f"{name}.dlq")
        for name, value in makers.items()
    }

    @p.flow(*sources.values(), to=p.sink("out", key="id", key_format=key, value=makers["json"]))
    def merged(*frames: DataFrame) -> DataFrame:
        found = frames[0].select("key", "id", "to")
        for frame in frames[1:]:
            found = found.unionByName(frame.select("key", "id", "to"))
        return found.select("id", "to")

    records = {
        f"source_{name}": [
            ottla.testing.Record(
                value=world.encode(f"{prefix}.{name}", {"id": number, "to": "Ana"}, 1), key=world.encode(f"{prefix}.key", number)
            ),
            b"nonsense",
        ]
        for number, name in enumerate(makers, 1)
    }
    rows = ottla.testing.run_flow(merged, records)
    assert sorted((row["id"], row["to"]) for row in rows) == [(1, "Ana"), (2, "Ana"), (3, "Ana")]
    assert sorted(each.reason.split(":")[0] for each in rows.dead_letters) == ["no value of a schema registry"] * 3


def send(broker: Broker, topic: str, records: list[tuple[bytes | None, bytes | None, list[tuple[str, bytes]]]]) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "log_level": 0})
    for key, value, headers in records:
        producer.produce(topic, value, key, 0, headers=list(headers))
    assert producer.flush(60) == 0


def test_the_data_source_decodes_keys_and_values(
    world: World, spark: SparkSession, ottla_broker: Broker, ottla_topic: str, tmp_path: Path
) -> None:
    for part, schema in (("value", FIRST), ("value", SECOND), ("key", "long")):
        world.client.register(f"{ottla_topic}-{part}", AVRO, json.dumps(schema))
    subject, key = f"{ottla_topic}-value", world.values.encode("7", world.client.version(f"{ottla_topic}-key"))
    old = world.values.encode('{"id": 1, "to": "Ana"}', world.client.version(subject, 1))
    row = '{"id": 2, "to": null, "amount": 2.5, "at": null, "day": null}'
    header, payload = world.values.encode_for_header(row, world.client.version(subject))
    send(ottla_broker, ottla_topic, [(key, old, []), (None, payload, [(VALUE_HEADER, header)]), (key, None, [])])
    options = {
        "kafka.bootstrap.servers": ottla_broker.bootstrap_servers,
        "subscribe": ottla_topic,
        "startingOffsets": "earliest",
        "registry.url": world.url,
        "registry.key.subject": f"{ottla_topic}-key",
    }
    frame = spark.read.format("ottla").options(**options).load()
    wanted = "struct<id:bigint,to:string,amount:double,at:timestamp,day:date>"
    assert frame.schema["value"].dataType.simpleString() == wanted
    assert frame.schema["key"].dataType.simpleString() == "struct<value:bigint>"
    columns = ("key.value", "value.id", "value.to", "value.amount", "offset")
    rows = [(7, 1, "Ana", 1.0, 0), (None, 2, None, 2.5, 1), (7, None, None, None, 2)]
    assert sorted((tuple(each) for each in frame.select(*columns).collect()), key=lambda each: int(each[4])) == rows
    stream = spark.readStream.format("ottla").options(**options).load().select("value.id", "value.amount")
    query = stream.writeStream.format("memory").queryName("decoded").option("checkpointLocation", str(tmp_path))
    query.trigger(availableNow=True).start().awaitTermination()
    assert sorted(spark.table("decoded").collect(), key=str) == [(1, 1.0), (2, 2.5), (None, None)]

    send(ottla_broker, ottla_topic, [(key, b"nonsense", [])])
    with pytest.raises(Exception, match=f"{ottla_topic}-0 offset 3: no value of a schema registry"):
        spark.read.format("ottla").options(**options).load().collect()
    found = spark.read.format("ottla").options(**options).option("registry.mode", "PERMISSIVE").load()
    assert found.where("offset = 3").select("value").collect() == [(None,)]
    with pytest.raises(Exception, match="40401"):
        spark.read.format("ottla").options(**options).option("registry.subject", "never-registered").load()


def test_the_data_source_gives_json_as_text(world: World, spark: SparkSession, ottla_broker: Broker, ottla_topic: str) -> None:
    subject = world.register("orders", JSON, {"type": "object"})
    send(ottla_broker, ottla_topic, [(b"plain", world.encode(subject, {"id": 1}), [])])
    frame = spark.read.format("ottla").option("kafka.bootstrap.servers", ottla_broker.bootstrap_servers)
    frame = frame.option("subscribe", ottla_topic).option("registry.url", world.url).option("registry.subject", subject)
    assert frame.load().select("key", "value").collect() == [(b"plain", '{"id": 1}')]


def test_f82_a_row_with_nothing_but_its_key_is_a_tombstone_in_every_format(world: World, spark: SparkSession) -> None:
    """Required fields too: the row never reaches the encoder."""
    wanted = {"type": "object", "properties": {"id": {"type": "integer"}, "to": {"type": "string"}}, "required": ["to"]}
    formats: list[Value] = [
        p.json(),
        p.avro(json.dumps(FIRST)),
        p.avro(subject=world.register("avro", AVRO, FIRST), registry=world.url),
        p.json_schema(world.register("json", JSON, wanted), registry=world.url),
        p.protobuf(world.register("proto", PROTOBUF, PROTO % ""), registry=world.url),
    ]
    key = p.avro(subject=world.register("key", AVRO, '"string"'), registry=world.url)
    rows = [("kept", 1, "Ana", False), ("nulls", None, None, None), ("deleted", 2, None, True)]
    frame = spark.createDataFrame(rows, "key string, id int, to string, gone boolean")
    for value in formats:
        for target, given in (
            (p.sink("out", key="key", value=value, delete_when="gone"), frame),
            (p.sink("out", key="key", value=value, key_format=key), frame.where("key != 'deleted'").drop("gone")),
        ):
            written = given.select(*encoding.columns(given, target, "copy")).collect()
            assert [row["value"] is None for row in written] == [False, *[True] * (len(written) - 1)], target
            assert b"Ana" in written[0]["value"]
            assert all(row["key"] for row in written)


@pytest.mark.parametrize(
    ("schema_type", "schema"), [(AVRO, SECOND), (JSON, {"properties": {"id": {"type": "integer"}}}), (PROTOBUF, PROTO % "")]
)
def test_functions_for_any_frame(world: World, spark: SparkSession, schema_type: str, schema: Any) -> None:
    from pyspark.sql import functions as F

    subject = world.register("orders", schema_type, schema)
    made: dict[str, Any] = {AVRO: lambda name, **more: p.avro(subject=name, **more), JSON: p.json_schema, PROTOBUF: p.protobuf}
    value = made[schema_type](subject, registry=world.url)
    row = F.struct(
        F.lit(7).cast("bigint").alias("id"), F.lit("Ana").alias("to"), F.lit(1.5).alias("amount"),
        F.lit(None).cast("timestamp").alias("at"), F.lit(None).cast("date").alias("day"),
    )  # fmt: skip
    frame = spark.range(1).select(p.to_registry(row, value).alias("good"), F.lit(b"nonsense").alias("bad"))
    found = frame.select(
        "good",
        p.from_registry("good", value).alias("read"),
        p.from_registry(F.col("bad"), value).alias("none"),
        p.from_registry("bad", value, reason="why")["why"].alias("why"),
    ).first()
    assert found is not None
    assert world.decode(bytes(found["good"]))["id"] in (7, "7")
    assert found["read"]["id"] == 7
    assert found["none"] is None
    assert "no value of a schema registry" in found["why"]
    with pytest.raises(PipelineError, match="has no subject"):
        p.from_registry("good", p.avro(json.dumps(FIRST)))


def test_a_sink_names_schemas_in_headers(world: World, spark: SparkSession) -> None:
    from pyspark.sql import functions as F

    key = p.avro(subject=world.register("key", AVRO, '"long"'), registry=world.url, schema_header=True)
    values = {
        "avro": p.avro(json.dumps(FIRST), subject=f"{world.prefix}.avro", registry=world.url, schema_header=True),
        "json": p.json_schema(world.register("json", JSON, "{}"), registry=world.url, schema_header=True),
        "proto": p.protobuf(world.register("proto", PROTOBUF, PROTO % ""), registry=world.url, schema_header=True),
    }
    own = F.array(F.struct(F.lit("own").alias("key"), F.lit(b"1").alias("value")))
    frame = spark.createDataFrame([(1, "Ana"), (2, None)], "id bigint, to string").withColumn("more", own)
    for value in values.values():
        written = p.sink("out", key="id", key_format=key, value=value, headers="more")
        rows = frame.select(*encoding.columns(frame, written, "copy")).collect()
        found = [dict(map(tuple, row["headers"])) for row in rows]
        assert [sorted(each) for each in found] == [[KEY_HEADER, VALUE_HEADER, "own"], [KEY_HEADER, "own"]]
        assert world.decode(bytes(found[0][VALUE_HEADER] + rows[0]["value"]))["to"] == "Ana"
        assert world.decode(bytes(found[1][KEY_HEADER] + rows[1]["key"])) == 2
        assert rows[1]["value"] is None
        with pytest.raises(PipelineError, match="schema_header"):
            p.to_registry("more", value)


@pytest.mark.parametrize("in_header", [False, True])
def test_the_data_source_writes_with_schemas(
    world: World, spark: SparkSession, ottla_broker: Broker, ottla_topic: str, tmp_path: Path, in_header: bool
) -> None:
    options = {
        "kafka.bootstrap.servers": ottla_broker.bootstrap_servers,
        "topic": ottla_topic,
        "registry.url": world.url,
        "registry.schema": json.dumps(FIRST),
        "registry.key.subject": f"{ottla_topic}-key",
        "registry.key.schema": '"long"',
        "registry.schema.header": str(in_header),
    }
    rows = ("struct(id AS value) AS key", "if(id = 2, null, struct(CAST(id AS int) AS id, 'Ana' AS to)) AS value")
    frame = spark.range(3).selectExpr(*rows)
    frame.write.format("ottla").options(**options).mode("append").save()
    read = {name: value for name, value in options.items() if name.startswith("kafka") or name == "registry.url"}
    read |= {"subscribe": ottla_topic, "registry.key.subject": f"{ottla_topic}-key"}
    written = spark.read.format("ottla").options(**read).load().select("key.value", "value.id", "value.to").collect()
    assert sorted(written) == [(0, 0, "Ana"), (1, 1, "Ana"), (2, None, None)]

    # A stream, with the latest version of the subject.
    del options["registry.schema"], options["registry.key.schema"]
    raw = {"kafka.bootstrap.servers": ottla_broker.bootstrap_servers, "subscribe": ottla_topic, "startingOffsets": "earliest"}
    source = spark.readStream.format("ottla").options(**raw).load().selectExpr("offset AS id").selectExpr(*rows)
    query = source.writeStream.format("ottla").options(**options).option("checkpointLocation", str(tmp_path))
    query.trigger(availableNow=True).start().awaitTermination()
    assert spark.read.format("ottla").options(**read).load().where("value.to = 'Ana'").count() == 4
    headers = spark.read.format("ottla").options(**raw).option("includeHeaders", "true").load().where("value IS NULL")
    assert [each["key"] for row in headers.collect() for each in row["headers"] or ()] == [KEY_HEADER] * 2 * in_header


def test_the_data_source_writes_json_text_with_its_schema(
    world: World, spark: SparkSession, ottla_broker: Broker, ottla_topic: str
) -> None:
    subject = world.register("orders", JSON, {"type": "object"})
    writer = spark.sql("SELECT '{\"id\": 1}' AS value").write.format("ottla").mode("append")
    writer = writer.option("kafka.bootstrap.servers", ottla_broker.bootstrap_servers).option("topic", ottla_topic)
    writer.option("registry.url", world.url).option("registry.subject", subject).save()
    [row] = spark.read.format("ottla").option("kafka.bootstrap.servers", ottla_broker.bootstrap_servers).option(
        "subscribe", ottla_topic
    ).load().collect()  # fmt: skip
    assert world.decode(bytes(row["value"])) == {"id": 1}


@pytest.mark.parametrize(
    ("rows", "options", "reason"),
    [
        ("named_struct('id', 1) AS value", {"registry.schema": json.dumps(FIRST)}, "has the field to too"),
        ("'text' AS value", {"registry.schema": json.dumps(FIRST)}, "it is a struct with the fields id, to"),
        ("named_struct('id', 1) AS value", {"registry.schema": "{}", "registry.schema.type": "JSON"}, "to_json"),
        ("'text' AS value", {}, "40401"),
        ("'text' AS value", {"registry.mode": "PERMISSIVE"}, "unknown registry setting mode"),
    ],
)
def test_what_the_data_source_cannot_write_with_a_schema(
    world: World, spark: SparkSession, ottla_broker: Broker, rows: str, options: dict[str, str], reason: str
) -> None:
    given = {
        "kafka.bootstrap.servers": ottla_broker.bootstrap_servers,
        "topic": world.prefix,
        "registry.url": world.url,
    } | options
    given["registry.subject"] = f"{world.prefix}.{abs(hash(reason))}"
    with pytest.raises(Exception, match=reason):
        spark.sql(f"SELECT {rows}").write.format("ottla").options(**given).mode("append").save()


def test_rules_that_nothing_here_runs_are_refused_by_name(world: World, spark: SparkSession) -> None:
    def register(subject: str, **more: Any) -> p.Framed:
        name = f"{world.prefix}.{subject}"
        rule = {"name": "hide", "kind": "TRANSFORM", "type": "ENCRYPT", "mode": "WRITEREAD", "tags": ["PII"]} | more
        body = {"schema": json.dumps(FIRST), "ruleSet": {"domainRules": [rule]}}
        world.client.request("POST", f"/subjects/{name}/versions", body)
        value = p.avro(subject=name, registry=world.url)
        assert isinstance(value, p.Framed)
        return value

    value = register("encrypted")
    for use in (registry_columns.reader_schema, registry_columns.written_schema):
        with pytest.raises(PipelineError, match=r"the rule hide \(ENCRYPT, WRITEREAD\), which only Confluent's clients run"):
            use(value, HERE)
    with pytest.raises(PipelineError, match="hide"):
        registry_columns.written_schema(replace(value, schema=json.dumps(FIRST)), HERE)
    with pytest.raises(NotOfSchema, match="hide"):
        world.encode(value.subject, {"id": 1, "to": "Ana"})
    assert registry_columns.reader_schema(replace(value, schema=json.dumps(FIRST)), HERE), "as it is stored"
    for name, more in (("disabled", {"disabled": True}), ("none", {"onFailure": "NONE,NONE"}), ("write", {"mode": "WRITE"})):
        assert registry_columns.reader_schema(register(name, **more), HERE)
