from __future__ import annotations

import pytest

from ottla.cli.failure import Failure
from ottla.cli.scope import parse_scope


@pytest.mark.parametrize(
    ("words", "scope"),
    [
        (["t"], {"t": None}),
        (["t:2,0"], {"t": [0, 2]}),
        (["t:1", "t:0,1", "u"], {"t": [0, 1], "u": None}),
        (["t:1", "t"], {"t": None}),
        (["t", "t:1"], {"t": None}),
    ],
)
def test_scopes(words: list[str], scope: dict[str, list[int] | None]) -> None:
    assert parse_scope(words) == scope


@pytest.mark.parametrize("word", [":1", "t:", "t:a", "t:1,", "t:-1", ""])
def test_scopes_that_are_none(word: str) -> None:
    with pytest.raises(Failure, match="is not a topic with partitions"):
        parse_scope([word])
