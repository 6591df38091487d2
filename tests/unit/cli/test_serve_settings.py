"""`ottla serve`: its options, and the layers of settings (F67)."""

from __future__ import annotations

from pathlib import Path

import pytest

from ottla.cli.serve import UsageError, _warn_interpreted, gather, main, parse_arguments


def test_defaults_are_a_local_broker() -> None:
    assert gather(parse_arguments([]), {}) == {"listeners": "PLAINTEXT://127.0.0.1:9092", "log.dirs": "./ottla-data"}


def test_set_over_environment_over_file_over_defaults(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text("num.partitions=1\nlog.segment.bytes=1000000\nlog.retention.ms=5\nlisteners=PLAINTEXT://:1\n")
    words = ["--config", str(file), "--set", "num.partitions=3"]
    gathered = gather(parse_arguments(words), {"OTTLA_NUM_PARTITIONS": "2", "OTTLA_LOG_SEGMENT_BYTES": "2000000", "HOME": "/"})
    assert gathered == {
        "listeners": "PLAINTEXT://:1",
        "log.dirs": "./ottla-data",
        "num.partitions": "3",
        "log.segment.bytes": "2000000",
        "log.retention.ms": "5",
    }


def test_data_dir_is_log_dirs_and_the_last_word_counts() -> None:
    assert gather(parse_arguments(["-d", "/a"]), {"OTTLA_LOG_DIRS": "/b"})["log.dirs"] == "/a"
    assert gather(parse_arguments(["--data-dir=/a", "-s", "log.dirs=/c"]), {})["log.dirs"] == "/c"


def test_log_dir_displaces_the_default_of_log_dirs() -> None:
    gathered = gather(parse_arguments(["--set=log.dir=/x"]), {})
    assert gathered["log.dir"] == "/x"
    assert "log.dirs" not in gathered


def test_a_mark_at_the_beginning_of_the_file_belongs_to_no_name(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_bytes(b"\xef\xbb\xbfnum.partitions=3\r\n")
    assert gather(parse_arguments(["-c", str(file)]), {})["num.partitions"] == "3"


def test_a_file_that_is_no_text_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "server.properties"
    file.write_bytes(b"num.\xff\xfe\x00")
    assert main(["-c", str(file)]) == 2
    assert capsys.readouterr().err == f"ottla serve: {file}: not UTF-8 text: byte 4 is 0xff\n"


def test_the_clients_variable_is_no_setting() -> None:
    assert "bootstrap.servers" not in gather(parse_arguments([]), {"OTTLA_BOOTSTRAP_SERVERS": "x:1"})
    assert "cache" not in gather(parse_arguments([]), {"OTTLA_CACHE": "/c"})


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["--nope"], "unknown option --nope"),
        (["here"], "unexpected argument 'here'"),
        (["--config"], "--config needs a value"),
        (["--set", "x"], "--set 'x' is not key=value"),
        (["--set", "=x"], "not key=value"),
        (["--supervisor-fd", "x"], "not an open socket"),
        (["--supervisor-fd", "999999999999"], "not an open socket"),
    ],
)
def test_a_wrong_command_line_is_told(words: list[str], problem: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(UsageError, match=problem):
        parse_arguments(words)
    assert main(words) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_every_bad_setting_gets_its_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--set", "num.partitons=3", "--set", "log.segment.bytes=tiny"]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 2
    assert "num.partitons" in lines[0]
    assert "num.partitions" in lines[0]
    assert "log.segment.bytes" in lines[1]


def test_missing_file_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--config", str(tmp_path / "nope")]) == 2
    assert capsys.readouterr().err == f"ottla serve: cannot read {tmp_path / 'nope'}: No such file or directory\n"


def test_file_that_is_no_text_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "x").write_bytes(b"\xff\xfe\x00")
    assert main(["--config", str(tmp_path / "x")]) == 2
    assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.parametrize(
    ("origin", "what"),
    [
        (None, "--no-binary ottla ottla"),
        ('{"url": "file:///home/ada/my%20ottla", "dir_info": {}}', "'/home/ada/my ottla'"),
        ('{"url": "https://x.example/ottla-0.1.0.tar.gz", "archive_info": {}}', "'ottla @ https://x.example/ottla-0.1.0.tar.gz'"),
    ],
)
def test_an_install_that_is_not_compiled_says_how_to_install_it_again(
    origin: str | None, what: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """From where pip had it: an index may not have this version, or none at all."""
    monkeypatch.setattr("os.path.exists", lambda _: False)  # no checkout
    monkeypatch.setattr("importlib.metadata.PathDistribution.read_text", lambda *_: origin)
    _warn_interpreted()
    assert caplog.messages[0].endswith(f"OTTLA_COMPILE=1 pip install --force-reinstall --no-deps {what}")
