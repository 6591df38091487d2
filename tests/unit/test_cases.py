"""docs/cases.md defines every case that src and tests name, and a test names every case it defines."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
ID = r"(?:F[1-9]\d?|[CGILRTW][0-2]\d|(?:TL|SA|SC|OA|DT|AC|MX|QU|CV|SR|AV|JS|PB|CO)\d\d)"
NAMED = re.compile(rf"(?<![\w#&\\/.-])({ID})(?:-({ID}))?(?![\w-]|\.\w)")
"""An id, or a range of them (`R01-R03`), in text."""
IN_TEST_NAME = re.compile(r"_([cfgilrtw]\d{1,2}|(?:tl|sa|sc|oa|dt|ac|mx|qu|cv|sr|av|js|pb|co)\d\d)(?=_|$)")
DEFINED = re.compile(rf"^- \*\*({ID})\*\* \S", re.MULTILINE)
LOOK_ALIKE: frozenset[tuple[str, str]] = frozenset()
"""(file, text) of what only looks like an id."""


def ids_in(text: str) -> Iterator[str]:
    for first, last in NAMED.findall(text):
        if not last:
            yield first
            continue
        letters = first.rstrip("0123456789")
        digits = first.removeprefix(letters)
        width = len(digits) if digits[0] == "0" else 1
        assert last.startswith(letters), f"{first}-{last} is no range"
        yield from (f"{letters}{number:0{width}}" for number in range(int(digits), int(last.removeprefix(letters)) + 1))


def named(folder: str, pattern: str = "*.py") -> dict[str, str]:
    """Every id named under a folder, with the first place that names it."""
    found: dict[str, str] = {}
    for path in sorted((ROOT / folder).rglob(pattern)):
        name = str(path.relative_to(ROOT))
        for number, line in enumerate(path.read_text().splitlines(), 1):
            ids = [each for each in ids_in(line) if (name, each) not in LOOK_ALIKE]
            if test := re.match(r"\s*(?:async )?def (test_\w+)", line):
                ids += [each.upper() for each in IN_TEST_NAME.findall(test[1])]
            for each in ids:
                found.setdefault(each, f"{name}:{number}")
    return found


def defined() -> list[str]:
    return DEFINED.findall((ROOT / "docs/cases.md").read_text())


def test_every_case_that_is_named_is_defined() -> None:
    places = named("src") | named("tests") | named("bench") | named("examples") | named("docs", "*.md")
    unknown = {each: place for each, place in places.items() if each not in defined()}
    assert not unknown, "define them in docs/cases.md, or write them so that they do not look like cases"


def test_every_case_that_is_defined_is_named_by_a_test() -> None:
    tested = named("tests", "test_*.py")
    assert not [each for each in defined() if each not in tested], "name them in the tests that cover them"


def test_no_case_is_defined_twice() -> None:
    found = defined()
    assert len(found) == len(set(found))
    assert len(found) > 100


def test_ranges_and_names_are_read() -> None:
    assert list(ids_in("(R01-R03, F9-F11)")) == ["R01", "R02", "R03", "F9", "F10", "F11"]
    assert list(ids_in("(TL01, TL01-TL01)")) == ["TL01", "TL01"]
    assert list(ids_in('f"F{1}" 2024-W18-3 #C02 FF12 T0 "F1x"')) == []
    assert IN_TEST_NAME.findall("test_r12_t10_tl01_something_f3") == ["r12", "t10", "tl01", "f3"]
