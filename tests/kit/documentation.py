"""The code blocks of a page of the documentation."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple


class Block(NamedTuple):
    language: str
    title: str
    """Of a console: the terminal. Of other languages: the file."""
    lines: list[str]


def blocks(page: Path) -> Iterator[Block]:
    pattern = r'^( *)```(\w+)(?: title="([^"]*)")?\n(.*?)^ *```$'
    for indent, language, title, body in re.findall(pattern, page.read_text(), re.S | re.M):
        yield Block(language, title, [line.removeprefix(indent) for line in body.splitlines()])
