"""Java's login configuration."""

from __future__ import annotations

import pytest

from ottla.security.jaas import BadJaas, LoginModule, parse_jaas, parse_jaas_file

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"


def test_quoted_single_quoted_and_bare_values() -> None:
    text = f'{PLAIN} required username="al\\"ice" password=\'s3 cret\' user_bob=bob-secret // a comment\n ;'
    assert parse_jaas(text) == LoginModule(PLAIN, {"username": 'al"ice', "password": "s3 cret", "user_bob": "bob-secret"})


def test_an_address_in_quotes_is_no_comment() -> None:
    assert parse_jaas('x required clientId="a" url="https://b/c";').options["url"] == "https://b/c"


def test_a_file_has_sections() -> None:
    text = """
    /* the broker */
    KafkaServer { x required a=b; y optional; };
    Client { org.apache.zookeeper.server.auth.DigestLoginModule required
        username="kafka" password="zk;secret}"; };
    """
    found = parse_jaas_file(text)
    assert [module.class_name for module in found["KafkaServer"]] == ["x", "y"]
    assert found["Client"][0].options == {"username": "kafka", "password": "zk;secret}"}


@pytest.mark.parametrize(
    "text",
    ["", "x", "x required", "x required password=hush", 'x required password="hush', "x hush password=hush;", "x required name;",
     "x required a=b; y required password=hush;", "x required password=;"],
)  # fmt: skip
def test_what_cannot_be_read_is_refused_without_its_values(text: str) -> None:
    with pytest.raises(BadJaas) as refused:
        parse_jaas(text)
    assert "hush" not in str(refused.value)
