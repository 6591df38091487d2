"""`format("ottla")`: topics in batch and streaming queries, on PySpark's Python Data Source API. No jars.

    spark.readStream.format("ottla").option("kafka.bootstrap.servers", "127.0.0.1:9092").option("subscribe", "orders").load()

It works with any Kafka broker. Columns and options are those of Spark's own Kafka source (`options`), with two differences:
1. Only committed records are read, unless `kafka.isolation.level` is `read_uncommitted`.
2. If `kafka.group.id` is set, the source commits the offsets of each finished micro-batch to that group, so lag tools see the
   query.

A user's schema chooses among the columns: `.schema("value string, offset long")`. Key and value may be string or binary.

`readers` are the classes that Spark calls, `columns` their schema, `planning` finds the offsets to read, `offsets` is the
arithmetic on them, `fetching` reads them; `writers` write, with `sink_options`. Spark loads the package through the module
`pyspark_ottla`. It needs nothing of the other pipeline modules but `workers`.

Where things run: Spark makes a `DataSource` in one driver process and pickles it; a stream's reader lives in another, long-lived
process; `read` runs in Python workers of the executors. So readers hold plain data and open connections where they use them. Most
of these processes only look at the options, so the client and the decoder are imported in functions.
"""
