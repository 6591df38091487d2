"""A certificate authority for tests: certificates of brokers and clients with chosen names, as PEM, within milliseconds."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    KeySerializationEncryption,
    NoEncryption,
    PrivateFormat,
    pkcs12,
)
from cryptography.x509.oid import NameOID

Key = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey


@dataclass(frozen=True)
class Issued:
    """A private key with its certificate."""

    key: Key
    certificate: x509.Certificate

    @property
    def certificate_pem(self) -> str:
        return self.certificate.public_bytes(Encoding.PEM).decode()

    @property
    def der(self) -> bytes:
        return self.certificate.public_bytes(Encoding.DER)

    def key_pem(self, password: str | None = None) -> str:
        sealed: KeySerializationEncryption = BestAvailableEncryption(password.encode()) if password else NoEncryption()
        return self.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, sealed).decode()

    def pem_file(self, path: Path, password: str | None = None) -> str:
        path.write_text(self.key_pem(password) + self.certificate_pem)
        return str(path)

    def pkcs12_file(self, path: Path, password: str) -> str:
        sealed = BestAvailableEncryption(password.encode())
        path.write_bytes(pkcs12.serialize_key_and_certificates(b"me", self.key, self.certificate, None, sealed))
        return str(path)


def name_of(*attributes: tuple[x509.ObjectIdentifier, str]) -> x509.Name:
    return x509.Name([x509.NameAttribute(oid, value) for oid, value in attributes])


class Authority:
    def __init__(self, common_name: str = "test authority") -> None:
        self.name = name_of((NameOID.COMMON_NAME, common_name))
        self._key = ec.generate_private_key(ec.SECP256R1())
        self.certificate = self._builder(self.name, self._key, 3650).add_extension(
            x509.BasicConstraints(ca=True, path_length=None), critical=True
        ).sign(self._key, hashes.SHA256())  # fmt: skip

    @property
    def pem(self) -> str:
        return self.certificate.public_bytes(Encoding.PEM).decode()

    def pem_file(self, path: Path) -> str:
        path.write_text(self.pem)
        return str(path)

    def issue(
        self,
        subject: str | x509.Name = "localhost",
        names: tuple[str, ...] = ("localhost", "127.0.0.1"),
        *,
        days: float = 30,
        rsa_key: bool = False,
    ) -> Issued:
        """`subject`: a common name, or a whole name. `names`: subject alternative names. `days`: negative if it expired."""
        key: Key = rsa.generate_private_key(65537, 2048) if rsa_key else ec.generate_private_key(ec.SECP256R1())
        builder = self._builder(name_of((NameOID.COMMON_NAME, subject)) if isinstance(subject, str) else subject, key, days)
        if names:
            builder = builder.add_extension(x509.SubjectAlternativeName([_general(name) for name in names]), critical=False)
        return Issued(key, builder.sign(self._key, hashes.SHA256()))

    def _builder(self, subject: x509.Name, key: Key, days: float) -> x509.CertificateBuilder:
        end = datetime.now(UTC) + timedelta(days=days)
        return x509.CertificateBuilder(
            issuer_name=self.name,
            subject_name=subject,
            public_key=key.public_key(),
            serial_number=x509.random_serial_number(),
            not_valid_before=min(end, datetime.now(UTC)) - timedelta(days=2),
            not_valid_after=end,
        )


def _general(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)
