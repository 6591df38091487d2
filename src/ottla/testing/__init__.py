"""A real broker for tests.

    with ottla.testing.Broker() as broker:
        Producer({"bootstrap.servers": broker.bootstrap_servers})

`broker` runs `ottla serve` in its own process, on a free port, with data in a temporary directory. `plugin` provides the pytest
fixtures `ottla_broker`, `ottla_secure_broker`, `ottla_topic` and `ottla_registry`; pytest finds it where Ottla is installed.
`security` gives a broker certificates and users: `Broker(security="SASL_SSL")`. `registry` runs `ottla registry` on a broker.
"""

from ottla.testing.broker import Broker, BrokerFailed
from ottla.testing.registry import Registry, RegistryFailed
from ottla.testing.security import Security

__all__ = ["Broker", "BrokerFailed", "Registry", "RegistryFailed", "Security"]
