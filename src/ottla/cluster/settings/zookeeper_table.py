"""The settings of the connection to ZooKeeper that secure it.

Names, types and defaults are Kafka's. `java.security.auth.login.config` is a property of the Java process in Kafka.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from ottla.cluster.settings.setting import BOOLEAN, LIST, PASSWORD, STRING, OneOf, broker_setting, one_of, table_of

_SOCKETS: Final = tuple(f"org.apache.zookeeper.{name}" for name in ("ClientCnxnSocketNetty", "ClientCnxnSocketNIO"))
_STORES: Final = OneOf(("JKS", "PKCS12", "PEM"), any_case=True)

_used = partial(broker_setting, used=True)

# fmt: off
ZOOKEEPER_SETTINGS: Final = table_of((
    _used("java.security.auth.login.config", STRING, None,
        doc="A JAAS file. Its section `Client` has the user name and the password with which this broker logs in at ZooKeeper "
            "(SASL DIGEST-MD5)."),
    _used("zookeeper.clientCnxnSocket", STRING, None, valid=one_of(*_SOCKETS),
        doc="Java's class of the connection to ZooKeeper. Accepted, without effect: `zookeeper.ssl.client.enable` decides."),
    _used("zookeeper.set.acl", BOOLEAN, False,
        doc="Whether only this broker's identity may change the znodes it creates, and read those with secrets."),
    _used("zookeeper.ssl.cipher.suites", LIST, None, doc="The TLS cipher suites towards ZooKeeper."),
    _used("zookeeper.ssl.client.enable", BOOLEAN, False, doc="Whether ZooKeeper is reached over TLS."),
    _used("zookeeper.ssl.crl.enable", BOOLEAN, False, doc="Revocation lists are not supported: only false."),
    _used("zookeeper.ssl.enabled.protocols", LIST, None, doc="The TLS versions towards ZooKeeper."),
    _used("zookeeper.ssl.endpoint.identification.algorithm", STRING, "HTTPS",
        doc="Whether the certificate of ZooKeeper must have its host name; empty: no."),
    _used("zookeeper.ssl.keystore.location", STRING, None, doc="The key store towards ZooKeeper, if it wants a certificate."),
    _used("zookeeper.ssl.keystore.password", PASSWORD, None, doc="The password of that key store."),
    _used("zookeeper.ssl.keystore.type", STRING, None, valid=_STORES, doc="The format of that key store. The content tells."),
    _used("zookeeper.ssl.ocsp.enable", BOOLEAN, False, doc="OCSP is not supported: only false."),
    _used("zookeeper.ssl.protocol", STRING, "TLSv1.2", valid=one_of("TLSv1.2", "TLSv1.3", "TLS"),
        doc="Java's name of the protocol. `zookeeper.ssl.enabled.protocols` decides."),
    _used("zookeeper.ssl.truststore.location", STRING, None, doc="The trust store towards ZooKeeper."),
    _used("zookeeper.ssl.truststore.password", PASSWORD, None, doc="The password of that trust store."),
    _used("zookeeper.ssl.truststore.type", STRING, None, valid=_STORES, doc="The format of that trust store. The content tells."),
))
# fmt: on
