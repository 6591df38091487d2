"""A real broker for tests.

    with ottla.testing.Broker() as broker:
        Producer({"bootstrap.servers": broker.bootstrap_servers})

`broker` runs `ottla serve` in a process of its own, on a free port, with data in a directory that goes away with it. `plugin`
offers the same to pytest as the fixtures `ottla_broker` and `ottla_topic`; it is found by itself once Ottla is installed.
"""

from ottla.testing.broker import Broker, BrokerFailed

__all__ = ["Broker", "BrokerFailed"]
