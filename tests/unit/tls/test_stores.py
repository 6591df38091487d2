"""Key and trust stores as keytool makes them, read without Java: JKS, PKCS12, PEM."""

from __future__ import annotations

import ssl
import subprocess
import sys
from pathlib import Path

import pytest

from ottla.tls import stores
from ottla.tls.stores import BadStore, certificates, key_and_chain, load_chain

pytestmark = pytest.mark.java
PASSWORD = "store-secret"
KEYTOOL_TIMEOUT_S = 180


def keytool(*words: str) -> None:
    subprocess.run(["keytool", *words], check=True, capture_output=True, timeout=KEYTOOL_TIMEOUT_S)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A key in JKS (with a password of its own) and in PKCS12, and its certificate in a trust store of each kind, and alone."""
    folder = tmp_path_factory.mktemp("stores")
    common = ("-storepass", PASSWORD, "-noprompt", "-alias", "me")
    key = ("-genkeypair", "-keyalg", "RSA", "-keysize", "2048", "-dname", "CN=me", "-validity", "30")
    keytool(*key, *common, "-keystore", str(folder / "key.jks"), "-storetype", "JKS", "-keypass", "key-secret")
    keytool("-exportcert", "-rfc", *common, "-keystore", str(folder / "key.jks"), "-file", str(folder / "me.pem"))
    keytool(
        *("-importkeystore", "-srckeystore", str(folder / "key.jks"), "-srcstorepass", PASSWORD, "-srcalias", "me"),
        *("-srckeypass", "key-secret", "-destkeystore", str(folder / "key.p12"), "-deststoretype", "PKCS12"),
        *("-deststorepass", PASSWORD, "-destkeypass", PASSWORD),
    )
    for kind, name in (("JKS", "trust.jks"), ("PKCS12", "trust.p12")):
        keytool("-importcert", *common, "-file", str(folder / "me.pem"), "-keystore", str(folder / name), "-storetype", kind)
    return folder


@pytest.fixture(params=["as installed", "by openssl"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """PKCS12 by the Python package where it is installed, and by the program."""
    if request.param == "by openssl":
        monkeypatch.setitem(sys.modules, "cryptography.hazmat.primitives.serialization", None)


def der(pem: str) -> bytes:
    begin = pem.index("-----BEGIN CERTIFICATE-----")
    return ssl.PEM_cert_to_DER_cert(pem[begin : pem.index("-----END CERTIFICATE-----") + 25])


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("name", ["trust.jks", "trust.p12", "me.pem"])
def test_a_trust_store_is_its_certificates(made: Path, name: str) -> None:
    found = certificates(str(made / name), PASSWORD)
    assert der(found) == der((made / "me.pem").read_text())
    ssl.create_default_context(cadata=found)


def test_certificates_of_jks_need_no_password_as_in_java(made: Path) -> None:
    assert der(certificates(str(made / "trust.jks"), None)) == der((made / "me.pem").read_text())


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize(("name", "key_password"), [("key.jks", "key-secret"), ("key.p12", None)])
def test_a_key_store_is_a_key_with_its_certificate(made: Path, name: str, key_password: str | None) -> None:
    pem, password = key_and_chain(str(made / name), PASSWORD, key_password)
    assert password is None
    # OpenSSL checks that the two belong together.
    load_chain(ssl.create_default_context(), pem, password)


def test_pem_with_an_encrypted_key_keeps_its_password(made: Path, tmp_path: Path) -> None:
    pem, _ = key_and_chain(str(made / "key.jks"), PASSWORD, "key-secret")
    plain, sealed = tmp_path / "plain.pem", tmp_path / "sealed.pem"
    plain.write_text(pem)
    words = ["openssl", "pkcs8", "-topk8", "-in", str(plain), "-out", str(sealed), "-passout", "pass:other"]
    subprocess.run(words, check=True, capture_output=True, timeout=KEYTOOL_TIMEOUT_S)
    sealed.write_text(sealed.read_text() + (made / "me.pem").read_text())
    found, password = key_and_chain(str(sealed), None, "other")
    load_chain(ssl.create_default_context(), found, password)
    with pytest.raises(BadStore, match=r"no password was given \(ssl.key.password\)"):
        load_chain(ssl.create_default_context(), found, None)


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("name", ["trust.jks", "trust.p12"])
def test_a_wrong_password_is_said(made: Path, name: str) -> None:
    with pytest.raises(BadStore, match=r"(?i)password"):
        certificates(str(made / name), "wrong")


def test_a_wrong_password_of_the_key_is_said(made: Path) -> None:
    with pytest.raises(BadStore, match="the key's password is wrong"):
        key_and_chain(str(made / "key.jks"), PASSWORD, "wrong")


def test_files_that_are_no_stores_are_said(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(BadStore, match="No such file"):
        certificates(str(tmp_path / "none"), None)
    cut = tmp_path / "cut.jks"
    cut.write_bytes((made / "trust.jks").read_bytes()[:200])
    with pytest.raises(BadStore, match="cut short"):
        certificates(str(cut), None)
    with pytest.raises(BadStore, match="no private key"):
        key_and_chain(str(made / "trust.jks"), PASSWORD, None)
    with pytest.raises(BadStore, match="no certificate"):
        certificates(str(made / "key.jks"), PASSWORD)
    monkeypatch.setitem(sys.modules, "cryptography.hazmat.primitives.serialization", None)
    monkeypatch.setattr(stores.shutil, "which", lambda name: None)  # type: ignore[attr-defined]
    with pytest.raises(BadStore, match="needs the Python package cryptography"):
        certificates(str(made / "trust.p12"), PASSWORD)
