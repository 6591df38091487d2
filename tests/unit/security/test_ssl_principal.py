"""Mapping rules. tests/differential/test_java_names.py compares them with Kafka's."""

from __future__ import annotations

import pytest

from ottla.security.principal import ANONYMOUS
from ottla.security.ssl_principal import BadRule, NoMatchingRule, SslPrincipalMapper, certificate_principal, java_pattern
from tests.kit.certificates import Authority

SUBJECT = "CN=Duke,OU=ServiceUsers,O=Org,C=US"


@pytest.mark.parametrize(
    ("rules", "name"),
    [
        ("DEFAULT", SUBJECT),
        ("RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/", "Duke"),
        ("RULE:^CN=(.*?),OU=Others.*$/$1/,RULE:^CN=(.*?),OU=(.*?),.*$/$1@$2/L,DEFAULT", "duke@serviceusers"),
        ("RULE:^CN=([^,]*),.*$/a\\/$1/U", "A/DUKE"),
        ("RULE:CN=.*/x$0/, DEFAULT", "x" + SUBJECT),
        ("RULE:^CN=([^,]*),.*$/$1$2/", "Duke$2"),
        ("RULE:^OU=.*$/x/,DEFAULT", SUBJECT),
    ],
)
def test_tl04_the_first_rule_that_matches_the_whole_name_decides(rules: str, name: str) -> None:
    assert SslPrincipalMapper(rules).name_of(SUBJECT) == name


@pytest.mark.parametrize("rules", ["RULE:CN=Duke/x/", "RULE:^OU=(.*)$/$1/", ""])
def test_tl04_without_a_match_there_is_no_principal(rules: str) -> None:
    with pytest.raises(NoMatchingRule, match="matches the subject CN=Duke"):
        SslPrincipalMapper(rules).name_of(SUBJECT)


@pytest.mark.parametrize("rules", ["rubbish", "RULE:a", "RULE:(/x/", "RULE:a/$1/", "RULE:a/$x/", "RULE:[a/x/", "RULE:a/x/Q1,b"])
def test_tl04_a_rule_that_cannot_work_is_refused(rules: str) -> None:
    with pytest.raises(BadRule):
        SslPrincipalMapper(rules)


def test_patterns_are_javas() -> None:
    for pattern in (r"\p{L}", "[a&&b]", "[a[b]]", r"\k<a>", "(?s).", r"\R", r"\h"):
        with pytest.raises(BadRule):
            java_pattern(pattern)
    mapper = SslPrincipalMapper(r"RULE:CN=(\w+).*/$1/")
    assert mapper.name_of("CN=Zoë") == "Zo", "as in Java, \\w is ASCII"


def test_tl03_without_a_certificate_a_client_is_anonymous() -> None:
    mapper = SslPrincipalMapper("DEFAULT")
    assert certificate_principal(mapper, None) == ANONYMOUS
    assert str(certificate_principal(mapper, Authority().issue("ada").der)) == "User:CN=ada"
    with pytest.raises(ValueError):
        certificate_principal(mapper, b"rubbish")
