"""A real broker for tests.

    with ottla.testing.Broker() as broker:
        Producer({"bootstrap.servers": broker.bootstrap_servers})

`broker` runs `ottla serve` in its own process, on a free port, with data in a temporary directory. `plugin` provides the pytest
fixtures `ottla_broker` and `ottla_topic`; pytest finds it where Ottla is installed.
"""

from ottla.testing.broker import Broker, BrokerFailed

__all__ = ["Broker", "BrokerFailed"]
