"""`ottla topic`: what people type."""

from __future__ import annotations

import pytest

from ottla.cli.failure import Failure
from ottla.cli.topic import parse_assignment


def test_assignment() -> None:
    assert parse_assignment("0:1,1:2") == [[0, 1], [1, 2]]
    assert parse_assignment("7") == [[7]]


@pytest.mark.parametrize("text", ["", "a", "0:1,2", "0,,1", "-1", "2147483648"])
def test_bad_assignment(text: str) -> None:
    with pytest.raises(Failure, match="not a replica assignment"):
        parse_assignment(text)
