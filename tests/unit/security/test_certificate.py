from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509
from cryptography.x509.oid import NameOID

from ottla.security.certificate import BadCertificate, read_certificate, subject_of
from tests.kit.certificates import Authority, name_of

AUTHORITY = Authority()


def test_tl03_the_subject_begins_with_its_last_part() -> None:
    subject = name_of(
        (NameOID.COUNTRY_NAME, "NL"),
        (NameOID.DOMAIN_COMPONENT, "example"),
        (NameOID.EMAIL_ADDRESS, "a@b"),
        (NameOID.COMMON_NAME, ' #a,b\\c"d; '),
    )
    assert subject_of(AUTHORITY.issue(subject, ()).der) == (
        'CN=\\ \\#a\\,b\\\\c\\"d\\;\\ ,1.2.840.113549.1.9.1=#1603614062,DC=example,C=NL'
    )
    assert subject_of(AUTHORITY.issue(x509.Name([]), ("a",)).der) == ""


def test_a_certificate_tells_its_names_and_its_end() -> None:
    issued = AUTHORITY.issue("broker", ("a.example", "127.0.0.1"), days=10)
    certificate = read_certificate(issued.der)
    assert certificate.alternative_names == {b"\x82\x09a.example", b"\x87\x04\x7f\x00\x00\x01"}
    end = issued.certificate.not_valid_after_utc
    assert certificate.not_after_ms == int(end.timestamp() * 1000)
    assert read_certificate(AUTHORITY.issue("broker", ()).der).alternative_names == frozenset()
    # From 2050 on, times have four digits for the year.
    far = AUTHORITY.issue("broker", days=(datetime(2060, 5, 1, tzinfo=UTC) - datetime.now(UTC)) / timedelta(days=1))
    assert datetime.fromtimestamp(read_certificate(far.der).not_after_ms / 1000, UTC).year == 2060


def test_what_is_no_certificate_is_refused() -> None:
    der = AUTHORITY.issue("broker").der
    for data in (b"", b"0", b"\x30\x85", bytes(100), b"rubbish" * 20, *(der[:size] for size in range(0, len(der), 7))):
        with pytest.raises(BadCertificate):
            read_certificate(data)
