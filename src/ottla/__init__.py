"""Ottla: a Kafka-compatible streaming platform in Python. `ARCHITECTURE.md` is the map of this package."""

__version__ = "0.1.0"
