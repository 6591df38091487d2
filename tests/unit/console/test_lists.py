"""Windows of long lists, changes of live documents, tokens to go on."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.cli.failure import Failure
from ottla.console.lists import Window, page
from ottla.console.live import View
from ottla.console.records.continuing import read_word, word_of

ROWS = [{"name": name, "lag": lag} for name, lag in (("b", 1), ("a", None), ("d", 7), ("c", 3))]


def names(**window: object) -> list[str]:
    asked = {"search": None, "sort": "name", "descending": False, "offset": 0, "limit": 100, "names": frozenset[str](), **window}
    found = page(ROWS, Window(**asked), lambda row: str(row["name"]), lambda row: row[asked["sort"]])  # type: ignore[arg-type, index]
    return [str(row["name"]) for row in found.items]


def test_order_and_window() -> None:
    assert names() == ["a", "b", "c", "d"]
    assert names(descending=True, limit=2) == ["d", "c"]
    assert names(offset=3) == ["d"]
    assert names(search="*[ab]") == []
    assert names(search="?") == ["a", "b", "c", "d"]
    assert names(search="B") == ["b"]
    assert names(names=frozenset("ad")) == ["a", "d"]


def test_what_is_unknown_comes_last_in_both_directions() -> None:
    assert names(sort="lag") == ["b", "c", "d", "a"]
    assert names(sort="lag", descending=True) == ["d", "c", "b", "a"]


_VIEWS = st.builds(
    View,
    st.dictionaries(st.sampled_from("xyz"), st.integers(0, 2)),
    st.dictionaries(st.sampled_from("abcd"), st.fixed_dictionaries({"n": st.integers(0, 2), "m": st.integers(0, 2)})),
)


@given(_VIEWS, _VIEWS)
def test_a_delta_makes_the_one_into_the_other(before: View, after: View) -> None:
    delta = after.delta_from(before)
    if delta is None:
        assert before.rows == after.rows
        assert list(before.rows) == list(after.rows)
        return
    rows = {key: dict(row) for key, row in before.rows.items() if key not in delta["gone"]}
    for key, changed in delta["rows"].items():
        rows.setdefault(key, {}).update(changed)
    assert rows == after.rows
    assert delta.get("order", list(before.rows)) == list(after.rows)
    assert {**before.head, **delta["head"]}.items() >= after.head.items()


_OFFSETS = st.integers(0, 1 << 62)


@given(
    st.dictionaries(
        st.tuples(st.text(max_size=5), st.integers(0, 99)), st.tuples(_OFFSETS, _OFFSETS, st.lists(_OFFSETS)), min_size=1
    )
)
def test_a_token_goes_round(left: dict[tuple[str, int], tuple[int, int, list[int]]]) -> None:
    word = word_of(left)
    assert word is not None
    assert read_word(word) == left


@pytest.mark.parametrize("word", ["", "abc", "eJyrVspPUbIy0FHKTFGyMtRRKs1LzFWyMgQAQ-IF7g", "x" * 70_000, "äöü"])
def test_a_wrong_token(word: str) -> None:
    with pytest.raises(Failure, match="continue"):
        read_word(word)


def test_nothing_is_left() -> None:
    assert word_of({}) is None
