"""Helpers that several test folders share. A helper with one user stays beside that user.

- waiting: `wait`
- processes of others: `peers` (Apache Kafka, kcat, Java tools), `zookeeper`, `apache_kafka`, `network` (namespaces)
- Ottla as processes: `cluster`, `ottla_command`
- the broker under test, Ottla or Apache Kafka: `subject`, `dialogues`, `ratchet`
- requests in the bare protocol: `raw`, `router`, `txn_speaker`
- parts of a broker, without a socket: `controller_world`, `coordinated`, `handlers`, `admin`, `client`
- logs, batches, messages, stores: `storage`, `compaction`, `producer`, `record_batches`, `random_messages`, `store_conformance`
"""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
"""The repository: the working directory of `python -m tests...` and `python -m bench...`."""
