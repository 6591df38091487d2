"""Metrics that clients push (KIP-714): who is subscribed to what, what arrives, and what /metrics shows of it.

- `instances`: clients by their instance id, their subscriptions, and when they may push;
- `otlp`: reads the pushed bytes, a part of OpenTelemetry's MetricsData;
- `client_metrics`: the latest values, bounded in number, forgotten when a client is silent;
- `telemetry`: the three together, for the handlers.
"""
