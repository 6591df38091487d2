"""The settings of TLS, and of principals that come from certificates.

Names, types and defaults are Kafka's. Java's providers and engines cannot be chosen: TLS is OpenSSL's. A setting that names one
is refused, since ignoring it could leave a listener less protected than its owner believes.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Final

from ottla.cluster.settings.setting import (
    BOOLEAN,
    CLASS,
    INT,
    LIST,
    PASSWORD,
    STRING,
    OneOf,
    Value,
    between,
    broker_setting,
    one_of,
    table_of,
)
from ottla.security.password_encoder import CBC, CIPHERS, ITERATIONS_MAX, KEY_FACTORIES

PER_BROKER: Final = "per-broker"
STORE_TYPES: Final = ("JKS", "PKCS12", "PEM")

_used = partial(broker_setting, used=True)


@dataclass(frozen=True, slots=True)
class Unset:
    words: str

    def accepts(self, value: Value) -> bool:
        return not value


_NO_JAVA: Final = Unset("no value, because TLS is OpenSSL's and no Java class or provider is loaded")

# fmt: off
TLS_SETTINGS: Final = table_of((
    _used("password.encoder.cipher.algorithm", STRING, CBC, valid=one_of(*CIPHERS),
        doc="The cipher for passwords in dynamic configs."),
    _used("password.encoder.iterations", INT, 4096, valid=between(1024, ITERATIONS_MAX),
        doc="Iterations of the key derivation for passwords in dynamic configs."),
    _used("password.encoder.key.length", INT, 128, valid=one_of("128", "192", "256"),
        doc="Length of the key for passwords in dynamic configs, in bits."),
    _used("password.encoder.keyfactory.algorithm", STRING, None, valid=one_of("", *KEY_FACTORIES),
        doc="Java's name of the key derivation for passwords in dynamic configs. Default: PBKDF2WithHmacSHA512."),
    _used("password.encoder.old.secret", PASSWORD, None,
        doc="The secret that `password.encoder.secret` has replaced: passwords encrypted with it can still be read."),
    _used("password.encoder.secret", PASSWORD, None,
        doc="The secret that encrypts passwords of key stores in dynamic configs. Without it they can only be set in "
            "server.properties."),
    _used("principal.builder.class", CLASS, "org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder",
        mode=PER_BROKER, valid=one_of("org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder"),
        doc="How principals are made of certificates and logins. Only Kafka's default; the rules are "
            "`ssl.principal.mapping.rules` and `sasl.kerberos.principal.to.local.rules`."),
    _used("security.providers", STRING, None, valid=_NO_JAVA, doc="Java's security providers. Not supported."),
    _used("ssl.allow.dn.changes", BOOLEAN, False,
        doc="Whether a key store that replaces another while the broker runs may have another subject."),
    _used("ssl.allow.san.changes", BOOLEAN, False,
        doc="Whether a key store that replaces another while the broker runs may lack some of its subject alternative names."),
    _used("ssl.cipher.suites", LIST, (), mode=PER_BROKER,
        doc="The cipher suites, by their IANA names as in Java. Default: OpenSSL's."),
    _used("ssl.client.auth", STRING, "none", valid=one_of("required", "requested", "none"), mode=PER_BROKER,
        doc="Whether clients present a certificate. On a SASL_SSL listener only "
            "`listener.name.<listener>.ssl.client.auth` applies."),
    _used("ssl.enabled.protocols", LIST, ("TLSv1.2", "TLSv1.3"), valid=OneOf(("TLSv1.2", "TLSv1.3", "TLSv1.1", "TLSv1")),
        mode=PER_BROKER, doc="The TLS versions. TLSv1 and TLSv1.1 are accepted beside newer ones, and never used."),
    _used("ssl.endpoint.identification.algorithm", STRING, "https", valid=OneOf(("https", ""), any_case=True), mode=PER_BROKER,
        doc="Whether this broker, as a client of other brokers, compares their certificates with their host names: `https`, "
            "or empty for no."),
    _used("ssl.engine.factory.class", CLASS, None, valid=_NO_JAVA, mode=PER_BROKER,
        doc="Java class that makes TLS engines. Not supported."),
    _used("ssl.key.password", PASSWORD, None, mode=PER_BROKER,
        doc="The password of the private key. Default for JKS: that of the key store."),
    _used("ssl.keymanager.algorithm", STRING, "SunX509", valid=one_of("SunX509", "NewSunX509", "PKIX"), mode=PER_BROKER,
        doc="Java's name of the way a key is chosen from the key store. Ottla takes the first key for all of them."),
    _used("ssl.keystore.certificate.chain", PASSWORD, None, mode=PER_BROKER,
        doc="The certificate chain as PEM text, with `ssl.keystore.type=PEM`."),
    _used("ssl.keystore.key", PASSWORD, None, mode=PER_BROKER,
        doc="The private key as PEM text (PKCS#8), with `ssl.keystore.type=PEM`."),
    _used("ssl.keystore.location", STRING, None, mode=PER_BROKER,
        doc="The file with the private key and its certificate chain."),
    _used("ssl.keystore.password", PASSWORD, None, mode=PER_BROKER, doc="The password of the key store; not for PEM."),
    _used("ssl.keystore.type", STRING, "JKS", valid=OneOf(STORE_TYPES, any_case=True), mode=PER_BROKER,
        doc="The format of the key store. A JKS file and a PKCS12 file are told apart by their content."),
    _used("ssl.principal.mapping.rules", STRING, "DEFAULT",
        doc="Rules from the subject of a client's certificate to the name of its principal: `DEFAULT` or "
            "`RULE:pattern/replacement/[L\\|U]`, separated by commas. A connection that no rule matches is closed."),
    _used("ssl.protocol", STRING, "TLSv1.3", valid=one_of("TLSv1.3", "TLSv1.2", "TLS"), mode=PER_BROKER,
        doc="Java's name of its TLS context. The versions are those of `ssl.enabled.protocols`."),
    _used("ssl.provider", STRING, None, valid=_NO_JAVA, mode=PER_BROKER, doc="Java's TLS provider. Not supported."),
    _used("ssl.secure.random.implementation", STRING, None, mode=PER_BROKER,
        valid=one_of("", "SHA1PRNG", "NativePRNG", "NativePRNGBlocking", "NativePRNGNonBlocking", "DRBG", "PKCS11"),
        doc="Java's source of randomness for TLS. Ottla uses OpenSSL's for all of them."),
    _used("ssl.trustmanager.algorithm", STRING, "PKIX", valid=one_of("PKIX", "SunX509"), mode=PER_BROKER,
        doc="Java's name of the way certificates are checked. Ottla checks them as PKIX does."),
    _used("ssl.truststore.certificates", PASSWORD, None, mode=PER_BROKER,
        doc="The trusted certificates as PEM text, with `ssl.truststore.type=PEM`."),
    _used("ssl.truststore.location", STRING, None, mode=PER_BROKER, doc="The file with the trusted certificates."),
    _used("ssl.truststore.password", PASSWORD, None, mode=PER_BROKER, doc="The password of the trust store; not for PEM."),
    _used("ssl.truststore.type", STRING, "JKS", valid=OneOf(STORE_TYPES, any_case=True), mode=PER_BROKER,
        doc="The format of the trust store."),
))
# fmt: on

RELOADED: Final = frozenset(
    name for name in TLS_SETTINGS if name.startswith(("ssl.keystore.", "ssl.truststore.")) or name == "ssl.key.password"
)
"""Can be changed while the broker runs, for a single listener (KIP-226)."""
