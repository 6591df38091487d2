"""The web console: a process of its own that serves pages, and the HTTP interface beneath them, for any Kafka.

`app` is the application: `endpoint` says what an endpoint is, `api` has them, a module per noun, `openapi` describes them.
`guard` and `access` keep others out; `audit` writes down changes. `watch` reads the cluster in rounds, by the exporter's reader;
lists (`lists`) and live documents (`live`, `sse`) come from its snapshots, and so does `attention`. `records` reads, searches and
decodes records. `console` holds the parts, `server` runs them, `__main__` is the process.

Above `cli`: what a command does, the console does by the same function.
"""
