"""`ottla exporter`: the metrics of a whole cluster, once, for Prometheus. Works with any Kafka; writes nothing to it.

A round reads the cluster, in the background and all brokers at once: `cluster_reader`, `group_reader`, `transaction_reader`,
`topic_settings` and `record_ages`, which fill the dataclasses of `reading`. `consumption` puts groups and log ends together, with
`lag` and `lead` for the rules of lag and lead in seconds, and `rebalances`. `names` writes the result in the spellings of
kafka_exporter, kminion and kafka-lag-exporter, and our own, as text (`exposition`). `service` runs the rounds, `endpoint` serves
the last text: a scrape waits for no broker. `filters` are the regular expressions of topics and groups.
"""
