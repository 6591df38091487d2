"""Log lines of a broker: JSON, rotation, what clients put into them, a full disk."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from ottla.broker.handlers.change_log import Who
from ottla.broker.network.peer import Peer
from ottla.runtime.log_output import JSON, TEXT, LogOutput
from ottla.types import TopicPartition


@contextmanager
def logging_to(path: Path, format: str) -> Iterator[tuple[logging.Logger, LogOutput]]:
    output = LogOutput(str(path), format)
    logger = logging.getLogger("ottla.runtime.log_output")
    logger.addHandler(output)
    logger.setLevel(logging.INFO)
    try:
        yield logger, output
    finally:
        logger.removeHandler(output)
        logger.setLevel(logging.NOTSET)
        output.close()


def test_a_json_line_has_what_the_line_is_about(tmp_path: Path) -> None:
    path = tmp_path / "broker.log"
    with logging_to(path, JSON) as (logger, output):
        logger.warning("%s lost records", TopicPartition("orders", 3))
        output.name_broker(7)
        logger.info("%s closed", Peer("::1", 5000, "SSL", "billing"))
        logger.info("%s deleted topic x", Who("User:ada", "10.0.0.1", None))
        try:
            raise ValueError("no")
        except ValueError:
            logger.exception("it\nfailed")
    lost, closed, changed, failed = [json.loads(line) for line in path.read_text().splitlines()]
    assert lost.pop("time").endswith("Z")
    assert lost == {
        "level": "WARNING",
        "logger": "ottla.runtime.log_output",
        "message": "orders-3 lost records",
        "topic": "orders",
        "partition": 3,
    }
    assert (closed["broker"], closed["client"], closed["client_id"], closed["listener"]) == (7, "[::1]:5000", "billing", "SSL")
    assert closed["message"] == "[::1]:5000 (client id billing) on SSL closed"
    assert (changed["principal"], changed["client"]) == ("User:ada", "10.0.0.1")
    assert failed["message"] == "it\nfailed"
    assert failed["exception"].endswith("ValueError: no")


def test_a_client_cannot_write_lines_of_its_own(tmp_path: Path) -> None:
    path = tmp_path / "broker.log"
    with logging_to(path, TEXT) as (logger, _):
        logger.info("%s closed", Peer("127.0.0.1", 1, "IN", "x\n2026 ERROR all is lost\x1b[2J"))
    assert len(path.read_text().splitlines()) == 1
    assert "x\\x0a2026 ERROR all is lost\\x1b[2J" in path.read_text()


def test_a_renamed_file_is_opened_again_and_a_truncated_one_grows_from_its_start(tmp_path: Path) -> None:
    path, old = tmp_path / "broker.log", tmp_path / "broker.log.1"
    with logging_to(path, TEXT) as (logger, output):
        logger.info("first")
        path.rename(old)
        logger.info("second")
        output.reopen()
        logger.info("third")
        assert [line.split()[-1] for line in old.read_text().splitlines()] == ["first", "second"]
        assert path.read_text().endswith("third\n")
        path.write_text("")  # copytruncate
        logger.info("fourth")
        assert path.read_bytes().endswith(b"fourth\n")
        assert b"\0" not in path.read_bytes()


def test_a_file_that_cannot_be_opened_again_leaves_the_old_one_in_use(tmp_path: Path) -> None:
    folder = tmp_path / "logs"
    folder.mkdir()
    with logging_to(folder / "broker.log", TEXT) as (_, output):
        folder.rename(tmp_path / "moved")
        output.reopen()
        assert "Cannot open the log file" in (tmp_path / "moved" / "broker.log").read_text()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="/dev/full is Linux's")
def test_lines_that_cannot_be_written_are_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "broker.log"
    with logging_to(path, TEXT) as (logger, output):
        output._path = "/dev/full"
        output.reopen()
        logger.info("lost")
        output._path = str(path)
        output.reopen()
        logger.info("written")
    assert "2 lines before could not be written" in path.read_text()
    assert "lost" not in path.read_text()
    assert path.read_text().endswith("written\n")
    assert capsys.readouterr().err == ""


def test_without_a_file_lines_go_to_stderr() -> None:
    output = LogOutput(None, TEXT)
    assert output.stream is sys.stderr
    output.reopen()
    assert output.stream is sys.stderr
