"""The varint reads in the loops over records are what their one source says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.unit.records.inline_varint import FILES, render


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_regions_are_as_generated(path: Path) -> None:
    source = path.read_text()
    assert render(source) == source, "run python tests/unit/records/inline_varint.py"
    assert len(re.findall(r"# (?:varint|varlong) \w+: generated", source)) >= 4


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_no_varint_is_read_in_place_outside_of_a_region(path: Path) -> None:
    outside = re.sub(r"# (?:varint|varlong) \w+: generated.*?# end\n", "", path.read_text(), flags=re.S)
    assert "<< 7) - 128" not in outside
