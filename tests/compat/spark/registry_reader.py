"""Topics with schemas of a registry: Ottla and Spark's own connector read what the other wrote. A process of its own.

`registry_reader.py servers registry prefix jars scratch`: prints one line of JSON with what each read.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from pyspark.sql import functions as F
from pyspark.sql.avro.functions import from_avro, to_avro

from ottla import pipelines as p
from ottla.client.schema_registry import RegistryOptions, SchemaRegistry
from ottla.pipelines import session
from ottla.schemas.framing import PREFIX_BYTES, write_id

SCHEMA = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "customer", "type": ["null", "string"], "default": None},
        {"name": "amount", "type": "double"},
    ],
}
ROWS = 100


def main() -> None:
    servers, registry, prefix, jars, scratch = sys.argv[1:]
    spark = session.start("registry", "local[2]", {"spark.driver.memory": "700m", "spark.jars": jars})
    schema, found = json.dumps(SCHEMA), {}
    written, piped, foreign = (f"{prefix}{name}" for name in ("written", "piped", "foreign"))
    value = p.avro(schema, subject=f"{prefix}value", registry=registry)
    rows = spark.range(ROWS).selectExpr("id", "if(id % 3 = 0, null, concat('c', id)) AS customer", "id / 4 AS amount")
    options = {"kafka.bootstrap.servers": servers, "registry.url": registry, "registry.subject": f"{prefix}value"}

    writer = rows.select(F.struct("*").alias("value")).write.format("ottla").options(**options).option("registry.schema", schema)
    writer.option("topic", written).mode("append").save()
    source = p.source(written, value, name="orders")
    settings: dict[str, Any] = {"bootstrap_servers": servers, "storage": str(Path(scratch, "storage"))}
    p.run(spark, p.sql(source, to=p.sink(piped, value=value), name="copy", query="SELECT * FROM orders"), once=True, **settings)

    def read_by_connector(topic: str) -> list[Any]:
        reader = spark.read.format("kafka").option("kafka.bootstrap.servers", servers).option("subscribe", topic)
        frame = reader.option("kafka.isolation.level", "read_committed").load()
        payload = F.expr(f"substring(value, {PREFIX_BYTES + 1})")
        return sorted(frame.select(from_avro(payload, schema).alias("order")).select("order.*").collect())

    wanted = sorted(rows.collect())
    found["of_data_source"] = read_by_connector(written) == wanted
    found["of_pipeline"] = read_by_connector(piped) == wanted
    with SchemaRegistry(RegistryOptions(registry)) as client:
        schema_id = client.version(f"{prefix}value").schema_id
    prefixed = F.concat(F.lit(write_id(schema_id)), to_avro(F.struct("*"), schema))
    rows.select(prefixed.alias("value")).write.format("kafka").option("kafka.bootstrap.servers", servers).option(
        "topic", foreign
    ).save()
    read = spark.read.format("ottla").options(**options).option("subscribe", foreign).load().select("value.*")
    found["of_connector"] = sorted(read.collect()) == wanted
    print(json.dumps(found))
    spark.stop()


if __name__ == "__main__":
    main()
