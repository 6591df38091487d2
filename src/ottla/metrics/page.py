"""Writes docs/metrics.md from the table: `python -m ottla.metrics.page > docs/metrics.md`."""

from __future__ import annotations

import sys
from collections.abc import Iterator

from ottla.metrics.family import Kind, Metric
from ottla.metrics.histogram import QUANTILES, ROTATION_S
from ottla.metrics.table import BY_TOPIC, GROUPS

_HEAD = f"""# Metrics

What a broker tells Prometheus. This page is generated from the table in `src/ottla/metrics/table.py` by
`python -m ottla.metrics.page`; a test checks that it is current.

```console
$ ottla serve --metrics 127.0.0.1:9404
$ curl -s http://127.0.0.1:9404/metrics
```

`--metrics HOST:PORT` is short for the setting `metrics.listener`, which each broker has for itself; without it a broker measures
nothing. The listener has no authentication: choose an address that only Prometheus reaches.

| path | answer |
|---|---|
| `/metrics` | everything below, as Prometheus text, or OpenMetrics if the `Accept` header prefers it |
| `/healthz` | 200 while the process and its event loop live |
| `/readyz` | 200 while it serves, is registered in ZooKeeper (in a cluster), and nothing of it is loading; else 503 and why |
| `/connections` | JSON: each connection with its listener, address, client id, software, principal, age, requests and bytes |

```yaml
scrape_configs:
  - job_name: ottla
    static_configs:
      - targets: ["broker-1:9404", "broker-2:9404", "broker-3:9404"]
```

Clients push their own metrics if they are [subscribed](operations.md#metrics-of-clients). They appear as `kafka_client_*`, with
the labels `client_id`, `client_instance_id`, `client_software_name`, `client_software_version` and those that the client adds.

Names and labels of `kafka_*` are those that the JMX exporter gives Kafka's beans with Strimzi's rules; times in them are in
milliseconds. A metric of type quantiles is a gauge with the label `quantile` ({", ".join(map(str, QUANTILES))}) over
the last {ROTATION_S} to {2 * ROTATION_S} seconds, and a counter `NAME_count`. Quantiles of several brokers cannot be added up;
`ottla_request_time_seconds` is a histogram that can:

```
histogram_quantile(0.99, sum by (request, le) (rate(ottla_request_time_seconds_bucket[5m])))
```

A topic has its metrics as long as this broker has a replica of it. Metrics of things a broker does not have are left out. A
scrape is made in slices of a millisecond, between which requests are served. With metrics and a scrape each second a broker
answers 1.2% fewer Produce requests of 64 connections (`python -m bench.metrics requests`).
"""


def render() -> str:
    parts = [_HEAD]
    for title, rows in GROUPS:
        parts += [f"## {title}\n", "| Name | Type | Labels | What it is |", "|---|---|---|---|", *map(_line, rows), ""]
    return "\n".join(parts)


def _line(metric: Metric) -> str:
    name = f"{metric.name}_bucket" if metric.kind is Kind.HISTOGRAM else metric.name
    return f"| `{name}` | {metric.kind.value} | {', '.join(_labels(metric))} | {metric.help} |"


def _labels(metric: Metric) -> Iterator[str]:
    for label in metric.labels:
        yield f"`{label}`, or none for the broker" if metric in BY_TOPIC else f"`{label}`"


if __name__ == "__main__":
    sys.stdout.write(render())
