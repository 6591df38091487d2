"""Kerberos principals and the rules that make users of them. The cases are those of Kafka's KerberosNameTest and RuleTest."""

from __future__ import annotations

import pytest

from ottla.security.kerberos_name import BadRule, KerberosName, NoUser, parse_rules, user_of

RULES = parse_rules(
    [
        r"RULE:[1:$1](App\..*)s/App\.(.*)/$1/g",
        r"RULE:[2:$1](App\..*)s/App\.(.*)/$1/g",
        "DEFAULT",
    ]
)


def test_the_parts_of_a_principal() -> None:
    assert KerberosName.parse("App.service-name/example.com@REALM") == KerberosName("App.service-name", "example.com", "REALM")
    assert KerberosName.parse("user@REALM") == KerberosName("user", None, "REALM")
    assert KerberosName.parse("user") == KerberosName("user", None, None)
    for wrong in ("a@b@c", "a/b/c@d", "@/"):
        with pytest.raises(NoUser):
            KerberosName.parse(wrong)


@pytest.mark.parametrize(
    ("principal", "user"),
    [
        ("App.service-name/example.com@REALM", "service-name"),
        ("App.service-name@REALM", "service-name"),
        ("user/host@REALM", "user"),
        ("user@REALM", "user"),
        ("user", "user"),
    ],
)
def test_the_first_rule_that_applies_decides(principal: str, user: str) -> None:
    assert user_of(principal, RULES, "REALM") == user


@pytest.mark.parametrize(
    ("rules", "principal", "user"),
    [
        (["RULE:[1:$1]/L"], "User@REALM", "user"),
        (["RULE:[2:$1]/L"], "TestABC/host@FOO.COM", "testabc"),
        (["RULE:[2:$1](Test.*)s/ABC///L"], "TestABC/host@FOO.COM", "test"),
        (["RULE:[2:$1]/U"], "TestABC/host@FOO.COM", "TESTABC"),
        (["RULE:[1:$1]()s/A/B/g/U"], "x@R", None),
        (["RULE:[1:$1@$0](.*@EXAMPLE.COM)s/@.*//"], "ada@EXAMPLE.COM", "ada"),
        (["RULE:[1:$1@$0](.*@EXAMPLE.COM)s/@.*//"], "ada@OTHER", None),
        (["RULE:[1:$1@$0]"], "ada@EXAMPLE.COM", None),
        (["RULE:[2:$2]"], "kafka/host@R", "host"),
        (["RULE:[2:$3]"], "kafka/host@R", None),
        (["RULE:[1:$1](a.*)", "DEFAULT"], "bob@REALM", "bob"),
        (["DEFAULT"], "bob@OTHER", None),
        ([], "bob@REALM", None),
        (["DEFAULT"], "", None),
        (["DEFAULT"], "@REALM", None),
        (["RULE:[1:$1]s/a/x/"], "aaa@R", "xaa"),
        (["RULE:[1:$1]s/a/x/g"], "aaa@R", "xxx"),
    ],
)
def test_rules(rules: list[str], principal: str, user: str | None) -> None:
    parsed = parse_rules(rules)
    if user is not None:
        assert user_of(principal, parsed, "REALM") == user
    else:
        with pytest.raises(NoUser):
            user_of(principal, parsed, "REALM")


@pytest.mark.parametrize(
    "rule",
    [
        "default",
        "DEFAUL",
        "DEFAULT/L",
        "RULE:[1:$1]g",
        "RULE:[1:$1]/l",
        "RULE:[:$1]",
        "RULE:[0:$0]",
        "RULE:[1:$1](*)",
        "RULE:",
        "RULE:[1:$1]/L/U",
    ],
)
def test_invalid_rules_are_refused(rule: str) -> None:
    with pytest.raises(BadRule):
        parse_rules([rule])
