"""`ottla perf`: `command` (produce, consume, latency), `latencies` (quantiles in bounded memory)."""
