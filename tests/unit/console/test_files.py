"""The files of the frontend, as browsers get them."""

from __future__ import annotations

import asyncio
import gzip
from pathlib import Path

import cramjam
import pytest
from starlette.requests import Request
from starlette.responses import Response

from ottla.console.files import Files

TEXT = b"export const answer = 42; // " + b"again " * 100


@pytest.fixture
def files(tmp_path: Path) -> Files:
    (tmp_path / "a.js").write_bytes(TEXT)
    (tmp_path.parent / "outside.js").write_bytes(b"secret")
    return Files(tmp_path)


def get(files: Files, name: str, **headers: str) -> Response:
    sent = [(key.replace("_", "-").encode(), value.encode()) for key, value in headers.items()]
    request = Request({"type": "http", "method": "GET", "path": f"/static/{name}", "headers": sent})
    return asyncio.run(files.answer(request, name))


@pytest.mark.parametrize(
    ("accepted", "encoding"),
    [("", None), ("identity", None), ("gzip, deflate", "gzip"), ("gzip, deflate, br, zstd", "br"), ("GZIP", "gzip")],
)
def test_a_browser_chooses_the_encoding(files: Files, accepted: str, encoding: str | None) -> None:
    answer = get(files, "a.js", accept_encoding=accepted)
    assert answer.headers.get("content-encoding") == encoding
    assert answer.headers["vary"] == "Accept-Encoding"
    assert answer.headers["content-type"].startswith("text/javascript")
    body = bytes(answer.body)
    unpack = {None: bytes, "gzip": gzip.decompress, "br": lambda packed: bytes(cramjam.brotli.decompress(packed))}[encoding]
    assert unpack(body) == TEXT
    assert encoding is None or len(body) < len(TEXT) / 4


def test_comments_and_indentation_are_left_out(files: Files, tmp_path: Path) -> None:
    text = "/*! MIT */\n// one\n/** two\n * lines */\nconst a = 1; // kept\n\n  /* x */ b(`//kept`);\n"
    (tmp_path / "b.js").write_text(text)
    (tmp_path / "b.html").write_text(text)
    assert get(files, "b.js").body == b"/*! MIT */\nconst a = 1; // kept\n/* x */ b(`//kept`);\n"
    assert get(files, "b.html").body == text.encode()


def test_a_browser_that_has_the_file_gets_no_body(files: Files) -> None:
    tags = {encoding: get(files, "a.js", accept_encoding=encoding).headers["etag"] for encoding in ("", "gzip", "br")}
    assert len(set(tags.values())) == 3
    answer = get(files, "a.js", accept_encoding="br", if_none_match=f'"other", {tags["br"]}')
    assert (answer.status_code, bytes(answer.body), answer.headers["etag"]) == (304, b"", tags["br"])
    assert get(files, "a.js", accept_encoding="gzip", if_none_match=tags["br"]).status_code == 200


@pytest.mark.parametrize("name", ["../outside.js", "b.js", "", "."])
def test_only_files_of_the_folder_are_served(files: Files, name: str) -> None:
    assert get(files, name).status_code == 404


def test_a_file_is_kept_once_by_whatever_name(files: Files) -> None:
    for name in ("a.js", "./a.js", "x/../a.js", "././a.js"):
        assert get(files, name).status_code == 200
    assert len(files._kept) == 1


@pytest.mark.parametrize("name", ["nothing.js", "", "../outside.js", "a\0.js", "a" * 5000])
def test_names_of_no_file(files: Files, name: str) -> None:
    assert get(files, name).status_code == 404
