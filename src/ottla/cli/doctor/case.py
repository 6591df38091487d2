"""What the checks look at: the connection, the cluster, and the options of the command."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from ottla.cli.cluster.view import BrokerState, ClusterView
from ottla.cli.connection import Connection


@dataclass(frozen=True, slots=True)
class Case:
    connection: Connection
    command_config: Path | None
    view: ClusterView
    now_ms: int
    watch_s: float = 3.0
    """How long groups are watched for progress."""
    probe: bool = False
    """Whether a check may write."""
    unreachable: Mapping[int, str] = field(default_factory=dict)
    """The brokers of the cluster that cannot be reached from here, and why. Only the check of listeners looks at them."""

    @property
    def brokers(self) -> list[BrokerState]:
        """The brokers that are in the cluster now and can be asked."""
        present = [broker for broker in self.view.brokers.values() if broker.broker_id not in self.unreachable]
        return sorted(present, key=lambda broker: broker.broker_id)
