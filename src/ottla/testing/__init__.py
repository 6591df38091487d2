"""A real broker for tests, and tests of pipelines without one.

    with ottla.testing.Broker() as broker:
        Producer({"bootstrap.servers": broker.bootstrap_servers})

`broker` runs `ottla serve` in its own process, on a free port, with data in a temporary directory. `plugin` provides the pytest
fixtures `ottla_broker`, `ottla_secure_broker`, `ottla_topic`, `ottla_registry` and `ottla_spark`; pytest finds it where Ottla is
installed. `security` gives a broker certificates and users: `Broker(security="SASL_SSL")`. `registry` runs `ottla registry` on a
broker. `flows` runs a flow of a pipeline on given rows: `ottla.testing.run_flow(revenue, {"orders": [{"id": 1}]})`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.testing.broker import Broker, BrokerFailed
from ottla.testing.registry import Registry, RegistryFailed
from ottla.testing.security import Security

if TYPE_CHECKING:
    from ottla.testing.flows import DeadLetter, Record, Rows, run_flow

__all__ = [
    "Broker",
    "BrokerFailed",
    "DeadLetter",
    "Record",
    "Registry",
    "RegistryFailed",
    "Rows",
    "Security",
    "run_flow",
]


def __getattr__(name: str) -> object:
    """Load `flows` when it is used: every pytest run imports this package."""
    if name in __all__:
        from ottla.testing import flows

        return getattr(flows, name)
    raise AttributeError(f"module 'ottla.testing' has no attribute {name!r}")
