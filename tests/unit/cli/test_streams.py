"""Started without stdin, stdout or stderr; interrupted before it has begun."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

import ottla.cli


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_a_closed_stream_does_not_lend_its_number_to_the_next_file(closed: str, tmp_path: Path) -> None:
    code = (
        "import sys, json, ottla.cli; ottla.cli._open_closed_streams();"
        f"file = open({str(tmp_path / 'next')!r}, 'w');"
        "json.dump([each.fileno() for each in (sys.stdin, sys.stdout, sys.stderr, file)], file)"
    )
    done = subprocess.run(["bash", "-c", f'"$0" -c "$1" {closed}', sys.executable, code], timeout=120)
    assert done.returncode == 0
    assert json.loads((tmp_path / "next").read_text())[:3] == [0, 1, 2]


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-"])
def test_the_command_works_without(closed: str) -> None:
    done = subprocess.run(
        ["bash", "-c", f'"$0" -P -m ottla serve --no-such {closed}', sys.executable], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr == ("" if closed == "2>&-" else "ottla serve: unknown option --no-such; see `ottla serve --help`\n")


@pytest.mark.parametrize(("module", "words"), [("ottla.cli.app", ["topic", "list"]), ("ottla.cli.serve", ["serve"])])
def test_ctrl_c_while_modules_are_loaded_is_an_exit_code(module: str, words: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    class Loading(ModuleType):
        def __getattr__(self, name: str) -> object:
            raise KeyboardInterrupt

    monkeypatch.setitem(sys.modules, module, Loading(module))
    with pytest.raises(SystemExit) as ended:
        ottla.cli.main(words)
    assert ended.value.code == 130
