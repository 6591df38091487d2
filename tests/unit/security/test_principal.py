"""Principals and addresses, as Kafka prints them."""

from __future__ import annotations

import pytest

from ottla.security.principal import ANONYMOUS, Principal, java_address


def test_a_principal_prints_as_type_and_name() -> None:
    assert str(Principal("User", "CN=ada,O=example")) == "User:CN=ada,O=example"
    assert str(ANONYMOUS) == "User:ANONYMOUS"


@pytest.mark.parametrize(
    ("host", "printed"),
    [
        ("127.0.0.1", "127.0.0.1"),
        ("::1", "0:0:0:0:0:0:0:1"),
        ("fe80::a0:1%eth0", "fe80:0:0:0:0:0:a0:1%eth0"),
        ("2001:db8::", "2001:db8:0:0:0:0:0:0"),
    ],
)
def test_addresses_print_as_in_java(host: str, printed: str) -> None:
    assert java_address(host) == printed
