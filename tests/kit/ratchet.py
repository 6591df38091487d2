"""Other projects' test suites as a ratchet: a test that has passed must keep passing.

A suite's folder holds `tests.allow` (names that must pass, one a line, `#` for remarks) and `FINDINGS.md` (what fails, and why).
A runner hands over the outcome of every test; `judge` prints the difference and gives the exit code.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path


def allowed(path: Path) -> list[str]:
    lines = (line.split("#", 1)[0].strip() for line in path.read_text().splitlines())
    return [line for line in lines if line]


def missed(outcomes: Mapping[str, str], allow: Path, *, only: str | None = None) -> list[str]:
    """The tests that must pass and did not. A runner runs them once more, alone: these suites have deadlines of a few seconds,
    too short on a busy machine. A fault of the broker fails again."""
    return [name for name in allowed(allow) if (only is None or only in name) and outcomes.get(name) != "passed"]


def judge(outcomes: Mapping[str, str], allow: Path, *, only: str | None = None) -> int:
    """`outcomes`: test -> passed|failed|skipped|...; with `only`, tests whose name lacks it were not run and are not judged."""
    must = [name for name in allowed(allow) if only is None or only in name]
    broken = missed(outcomes, allow, only=only)
    new = sorted(name for name, outcome in outcomes.items() if outcome == "passed" and name not in must)
    others = sorted(name for name, outcome in outcomes.items() if outcome not in ("passed", "skipped") and name not in must)
    counts = {kind: sum(1 for each in outcomes.values() if each == kind) for kind in sorted(set(outcomes.values()))}
    print("\n" + ", ".join(f"{count} {kind}" for kind, count in counts.items()) + f"; {len(must)} must pass")
    for name in others:
        print(f"  not required, {outcomes[name]}: {name}")
    for name in new:
        print(f"  passes by now, add it to {allow.name}: {name}")
    for name in broken:
        print(f"  BROKEN, must pass and is {outcomes.get(name, 'missing')}: {name}")
    return 1 if broken else 0
