"""A real broker for tests.

    with ottla.testing.Broker() as broker:
        Producer({"bootstrap.servers": broker.bootstrap_servers})

`broker` runs `ottla serve` in its own process, on a free port, with data in a temporary directory. `plugin` provides the pytest
fixtures `ottla_broker`, `ottla_secure_broker` and `ottla_topic`; pytest finds it where Ottla is installed. `security` gives a
broker certificates and users: `Broker(security="SASL_SSL")`.
"""

from ottla.testing.broker import Broker, BrokerFailed
from ottla.testing.security import Security

__all__ = ["Broker", "BrokerFailed", "Security"]
