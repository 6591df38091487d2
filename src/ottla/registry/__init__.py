"""`ottla registry`: a schema registry with Confluent's REST API. A process of its own, an ordinary client of any Kafka.

Cores without I/O: `log_format` (records of `_schemas`), `state` (what they mean), `changes` (what a write appends), `references`,
`subjects` (names and contexts), `election` (what registries tell each other), `errors`.

The shell: `partition` (the topic, requests to its leader), `log_reader`, `log_writer`, `membership` (the group that elects the
leader), `workers` (processes that run `worker`: what schemas may cost), `service` (a registry of all these), `http`, and
`server`, which puts it on a port.
"""
