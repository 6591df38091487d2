"""Suites of other projects that are neither in an sdist nor in a module: from a clone of their repository, with an environment of
their own.

`OTTLA_SUITES` names a folder that has them already, each as `NAME-VERSION`, for machines that cannot clone.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import xml.etree.ElementTree as xml
from collections.abc import Sequence
from pathlib import Path

from tests.kit.peers import MissingCounterpart, fetching


def sources(name: str, version: str, repository: str) -> Path:
    """The sources of a release, cloned once into the cache."""
    folder = f"{name}-{version}"
    given = os.environ.get("OTTLA_SUITES")
    with fetching(folder) as path:
        if path.exists():
            return path
        if given and Path(given, folder).is_dir():
            shutil.copytree(Path(given, folder), path, symlinks=True)
            return path
        command = ["git", "clone", "-q", "--depth", "1", "--branch", version, repository, str(path)]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            raise MissingCounterpart(
                f"{repository} could not be cloned; put its release {version} into a folder {folder}, and name the folder above "
                f"it in OTTLA_SUITES:\n{done.stderr[-1000:]}"
            )
    return path


def environment(name: str, packages: Sequence[str], python: str = sys.executable) -> Path:
    """The Python of a virtual environment with these packages, made once in the cache."""
    with fetching(name) as path:
        program = path / "bin" / "python"
        if not (path / "complete").exists():
            shutil.rmtree(path, ignore_errors=True)
            for command in ([python, "-m", "venv", str(path)], [str(program), "-m", "pip", "install", "-q", *packages]):
                done = subprocess.run(command, capture_output=True, text=True)
                if done.returncode:
                    raise MissingCounterpart(f"`{' '.join(command[:6])} …` failed:\n{done.stderr[-2000:]}")
            (path / "complete").touch()
    return program


def outcomes_of(report: Path) -> dict[str, str]:
    """The outcome of each test of a JUnit report; none if pytest came to no end."""
    if not report.exists():
        return {}
    kinds = {"failure": "failed", "error": "failed", "skipped": "skipped"}
    return {
        f"{case.get('classname')}::{case.get('name')}": kinds.get(next((child.tag for child in case), ""), "passed")
        for case in xml.parse(report).iter("testcase")
    }
