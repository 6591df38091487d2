"""The console's frontend as it is shipped: what others wrote is what they published, and all of it is small."""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
from pathlib import Path
from typing import Any

import pytest
from starlette.requests import Request

from ottla.console.files import Files

ROOT = Path(__file__).parents[3]
STATIC = ROOT / "src/ottla/console/static"
VENDORED = [STATIC / "vendor", ROOT / "tests/console/browser/vendor"]
LICENCES = {"MIT", "Apache-2.0", "MPL-2.0"}

FILES = sorted(path for path in STATIC.rglob("*") if path.is_file())
OURS = [path for path in FILES if path.parent.name != "vendor"]


IMPORT = re.compile(r"""^import\b[^;`]*?"([^"]+)";|\bfrom "([^"]+)";|\bimport\("([^"]+)"\)""", re.MULTILINE)


def entries(folder: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads((folder / "VENDOR.json").read_text())
    return found


@pytest.mark.parametrize("folder", VENDORED, ids=lambda path: str(path.relative_to(ROOT)))
def test_each_vendored_file_is_the_published_one(folder: Path) -> None:
    """`python tools/vendor.py FOLDER` wrote them. The changes it made are undone here, and what is left was published."""
    listed = {"VENDOR.json"}
    for entry in entries(folder):
        text = (folder / entry["file"]).read_text()
        assert hashlib.sha256(text.encode()).hexdigest() == entry["sha256"], entry["file"]
        text = text.removesuffix(entry.get("append", ""))
        for old, new in entry.get("edits", []):
            text = text.replace(new, old)
        assert hashlib.sha256(text.encode()).hexdigest() == entry["published_sha256"], entry["file"]
        assert entry["licence"] in LICENCES
        licence = "LICENSE." + entry["package"].removeprefix("@").replace("/", "-")
        assert (folder / licence).stat().st_size > 500
        listed |= {entry["file"], licence}
    assert {path.name for path in folder.iterdir()} == listed


def test_the_console_is_small() -> None:
    """At most 120 kB for a browser that opens every page, 0.5 MB in the wheel."""
    served = [path for path in FILES if not path.name.startswith("LICENSE") and path.name != "VENDOR.json"]
    files = Files(STATIC)

    async def sizes() -> list[int]:
        request = Request({"type": "http", "headers": [(b"accept-encoding", b"gzip, br")]})
        return [len((await files.answer(request, str(path.relative_to(STATIC)))).body) for path in served]

    assert sum(asyncio.run(sizes())) <= 120_000
    assert sum(path.stat().st_size for path in FILES) <= 500_000


def test_every_import_and_link_is_a_file_of_the_console() -> None:
    for path in OURS:
        text = path.read_text()
        for name in ("".join(found) for found in IMPORT.findall(text)) if path.suffix == ".js" else []:
            assert name.startswith("."), f"{path}: {name}"
            assert (path.parent / name).resolve().is_file(), f"{path}: {name}"
        for name in re.findall(r'(?:src|href)="([^"]+)"', text) if path.suffix == ".html" else []:
            assert name.startswith("/static/"), f"{path}: {name}"
            assert (STATIC / name.removeprefix("/static/")).is_file(), f"{path}: {name}"


def test_values_are_only_ever_text() -> None:
    """A value becomes a text node or an attribute: nothing of ours writes HTML, evaluates text, or loads from elsewhere."""
    forbidden = re.compile(
        r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function|https?://(?!127\.0\.0\.1|www\.w3\.org)"
    )
    found = [f"{path.relative_to(STATIC)}: {hit}" for path in OURS for hit in forbidden.findall(path.read_text())]
    assert found == []
    assert not re.search(r"<script(?![^>]* src=)|<style|style=|\son\w+=", (STATIC / "index.html").read_text())
