"""How a broken rule is reported."""

from __future__ import annotations


class Violation(Exception):
    """A rule was broken. `rule` is its name in docs/simulator.md."""

    def __init__(self, rule: str, detail: str) -> None:
        super().__init__(f"{rule}: {detail}")
        self.rule = rule
        self.detail = detail


def require(holds: bool, rule: str, detail: str) -> None:
    if not holds:
        raise Violation(rule, detail)
