"""`ottla log-dirs`: `command` (its commands), `view` (data directories as brokers describe them, and moves between them)."""
