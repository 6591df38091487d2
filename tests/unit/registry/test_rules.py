"""SR11: rules by user and subject."""

from __future__ import annotations

import pytest

from ottla.registry.rules import COMPATIBILITY, EVERYTHING, READ, WRITE, BadRules, parse_rules


def test_sr11_what_no_rule_allows_is_refused() -> None:
    rules = parse_rules('[[rule]]\nusers = ["ada", "team-*"]\nsubjects = ["orders-*"]\nallow = ["write"]\n')
    assert rules.allow("ada", WRITE, "orders-value")
    assert rules.allow("team-1", READ, "orders-value")
    assert not rules.allow("ada", COMPATIBILITY, "orders-value")
    assert not rules.allow("ada", READ, "payroll")
    assert not rules.allow("eve", READ, "orders-value")
    assert not parse_rules("").allow("ada", READ, "s")
    assert EVERYTHING.allow("ada", WRITE, "s")


@pytest.mark.parametrize(
    "text",
    [
        "not toml",
        "[rules]",
        '[rule]\nusers=["a"]',
        '[[rule]]\nusers=["a"]\nsubjects=["*"]\nallow=["fly"]',
        '[[rule]]\nusers="a"\nsubjects=["*"]\nallow=["read"]',
        '[[rule]]\nusers=["a"]\nsubjects=["*"]\nallow=["read"]\nmore=1',
        '[[rule]]\nusers=["a"]\nallow=["read"]',
    ],
)
def test_sr11_a_wrong_file_is_refused(text: str) -> None:
    with pytest.raises(BadRules):
        parse_rules(text)
