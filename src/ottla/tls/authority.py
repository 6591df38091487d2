"""A small certificate authority: makes keys and certificates, EC P-256, in PEM.

With the package `cryptography` (`pip install 'ottla[security]'`), else with the program `openssl`.
"""

from __future__ import annotations

import ipaddress
import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Protocol

_OPENSSL_TIMEOUT_S = 60


class CannotIssue(RuntimeError):
    """No certificate can be made. The message says why."""


class Issuer(Protocol):
    def authority(self, common_name: str, days: int) -> tuple[str, str]:
        """Key and certificate of a new authority, as PEM."""
        ...

    def issue(
        self, authority: tuple[str, str], common_name: str, hosts: Sequence[str], days: int, *, is_server: bool
    ) -> tuple[str, str]:
        """Key and certificate, as PEM. Those of servers are valid for clients too: brokers are clients of each other."""
        ...


def issuer() -> Issuer:
    """The package if it is installed, else the program."""
    try:
        import cryptography.x509  # type: ignore[import-not-found, unused-ignore] # noqa: F401
    except ImportError:
        program = shutil.which("openssl")
        if program is None:
            raise CannotIssue(
                "certificates need the package cryptography (pip install 'ottla[security]') or the program openssl"
            ) from None
        return OpenSsl(program)
    return Cryptography()


class Cryptography:
    def authority(self, common_name: str, days: int) -> tuple[str, str]:
        from cryptography.hazmat.primitives.asymmetric import ec

        key = ec.generate_private_key(ec.SECP256R1())
        return self._signed(common_name, key, common_name, key, days, is_authority=True, hosts=(), uses=())

    def issue(
        self, authority: tuple[str, str], common_name: str, hosts: Sequence[str], days: int, *, is_server: bool
    ) -> tuple[str, str]:
        from cryptography import x509
        from cryptography.hazmat.primitives.asymmetric import ec
        from cryptography.hazmat.primitives.serialization import load_pem_private_key
        from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

        signer = load_pem_private_key(authority[0].encode(), None)
        issuer = x509.load_pem_x509_certificate(authority[1].encode())
        name = str(issuer.subject.get_attributes_for_oid(NameOID.COMMON_NAME)[0].value)
        uses = [ExtendedKeyUsageOID.CLIENT_AUTH, *([ExtendedKeyUsageOID.SERVER_AUTH] if is_server else [])]
        key = ec.generate_private_key(ec.SECP256R1())
        return self._signed(common_name, key, name, signer, days, is_authority=False, hosts=hosts, uses=uses)

    @staticmethod
    def _signed(
        subject: str,
        key: Any,
        issuer: str,
        signer: Any,
        days: int,
        *,
        is_authority: bool,
        hosts: Sequence[str],
        uses: Sequence[Any],
    ) -> tuple[str, str]:
        from cryptography import x509
        from cryptography.hazmat.primitives import hashes
        from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
        from cryptography.x509.oid import NameOID

        now = datetime.now(UTC)
        builder = (
            x509.CertificateBuilder()
            .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, subject)]))
            .issuer_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, issuer)]))
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            # Clocks of other machines may be behind.
            .not_valid_before(now - timedelta(hours=1))
            .not_valid_after(now + timedelta(days=days))
            .add_extension(x509.BasicConstraints(ca=is_authority, path_length=0 if is_authority else None), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), critical=False)
            .add_extension(
                x509.KeyUsage(
                    digital_signature=not is_authority,
                    key_cert_sign=is_authority,
                    crl_sign=is_authority,
                    content_commitment=False,
                    key_encipherment=False,
                    data_encipherment=False,
                    key_agreement=False,
                    encipher_only=False,
                    decipher_only=False,
                ),
                critical=True,
            )
        )
        if hosts:
            names = [x509.IPAddress(ipaddress.ip_address(host)) if _is_address(host) else x509.DNSName(host) for host in hosts]
            builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        if uses:
            builder = builder.add_extension(x509.ExtendedKeyUsage(list(uses)), critical=False)
        certificate = builder.sign(signer, hashes.SHA256())
        private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
        return private, certificate.public_bytes(Encoding.PEM).decode()


class OpenSsl:
    def __init__(self, program: str) -> None:
        self._program = program

    def authority(self, common_name: str, days: int) -> tuple[str, str]:
        extensions = "basicConstraints=critical,CA:TRUE,pathlen:0\nkeyUsage=critical,keyCertSign,cRLSign\n"
        with tempfile.TemporaryDirectory(prefix="ottla-ca-") as place:
            folder = Path(place)
            self._request(folder, common_name)
            (folder / "ext").write_text(f"{extensions}subjectKeyIdentifier=hash\n")
            self._run(
                folder, "x509", "-req", "-in", "csr", "-signkey", "key", "-out", "cert", "-days", str(days), "-extfile", "ext"
            )
            return (folder / "key").read_text(), (folder / "cert").read_text()

    def issue(
        self, authority: tuple[str, str], common_name: str, hosts: Sequence[str], days: int, *, is_server: bool
    ) -> tuple[str, str]:
        with tempfile.TemporaryDirectory(prefix="ottla-ca-") as place:
            folder = Path(place)
            self._request(folder, common_name)
            (folder / "ca.key").write_text(authority[0])
            (folder / "ca.pem").write_text(authority[1])
            uses = "clientAuth,serverAuth" if is_server else "clientAuth"
            lines = ["basicConstraints=critical,CA:FALSE", "keyUsage=critical,digitalSignature", f"extendedKeyUsage={uses}"]
            lines += ["subjectKeyIdentifier=hash", "authorityKeyIdentifier=keyid"]
            if hosts:
                lines.append("subjectAltName=" + ",".join(f"{'IP' if _is_address(host) else 'DNS'}:{host}" for host in hosts))
            (folder / "ext").write_text("\n".join(lines) + "\n")
            words = (
                "-CA",
                "ca.pem",
                "-CAkey",
                "ca.key",
                "-CAcreateserial",
                "-out",
                "cert",
                "-days",
                str(days),
                "-extfile",
                "ext",
            )
            self._run(folder, "x509", "-req", "-in", "csr", *words)
            return (folder / "key").read_text(), (folder / "cert").read_text()

    def _request(self, folder: Path, common_name: str) -> None:
        curve = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
        # An empty configuration: that of the machine may ask questions.
        (folder / "conf").write_text("[req]\ndistinguished_name=dn\n[dn]\n")
        self._run(folder, "req", "-config", "conf", *curve, "-keyout", "key", "-out", "csr", "-subj", f"/CN={common_name}")

    def _run(self, folder: Path, *words: str) -> None:
        done = subprocess.run(
            [self._program, *words],
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=_OPENSSL_TIMEOUT_S,
            check=False,
            env={**os.environ, "RANDFILE": str(folder / "rnd")},
        )
        if done.returncode:
            raise CannotIssue(f"openssl {words[0]} failed: {done.stderr.strip().rpartition(chr(10))[2]}")


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
