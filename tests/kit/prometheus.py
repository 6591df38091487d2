"""Prometheus and promtool: from the PATH, or Debian's package unpacked into the cache. Nothing is installed, nothing started."""

from __future__ import annotations

import json
import shutil
import subprocess
import tempfile
import urllib.error
import urllib.parse
import urllib.request
from functools import cache
from pathlib import Path
from typing import Any

from tests.kit.peers import MissingCounterpart, Service, cache_dir, fetching, free_ports, program

_INSTALL = "install it (Debian: `apt-get install prometheus`)"


@cache
def prometheus_program(name: str) -> str:
    """The path of `prometheus` or `promtool`."""
    found = shutil.which(name)
    if found:
        return found
    with fetching("prometheus-debian") as folder:
        if not folder.exists():
            _unpack(folder)
        return str(folder / "usr" / "bin" / name)


def _unpack(folder: Path) -> None:
    apt = program("apt-get", _INSTALL)
    with tempfile.TemporaryDirectory(dir=cache_dir(), prefix="prometheus.") as scratch:
        if subprocess.run([apt, "download", "prometheus"], cwd=scratch, capture_output=True).returncode:
            # The lists of packages may be missing or old.
            subprocess.run([apt, "update", "-q"], capture_output=True)
            done = subprocess.run([apt, "download", "prometheus"], cwd=scratch, capture_output=True, text=True)
            if done.returncode:
                raise MissingCounterpart(f"Prometheus cannot be fetched: {_INSTALL}\n{done.stdout}{done.stderr}")
        (package,) = Path(scratch).glob("prometheus_*.deb")
        new = Path(scratch, "unpacked")
        subprocess.run(["dpkg", "-x", str(package), str(new)], check=True, capture_output=True)
        new.rename(folder)


def promtool(*words: str, cwd: Path | None = None) -> str:
    """Run promtool, expect success, return its output."""
    command = [prometheus_program("promtool"), *words]
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, f"{' '.join(words)}\n{done.stdout}{done.stderr}"
    return done.stdout


class Prometheus(Service):
    """A Prometheus of its own with this configuration."""

    name = "prometheus"

    def __init__(self, config: Path) -> None:
        super().__init__()
        self._config = config
        (self.port,) = free_ports(1)

    def command(self) -> list[str]:
        return [
            prometheus_program("prometheus"),
            f"--config.file={self._config}",
            f"--storage.tsdb.path={self.dir / 'data'}",
            f"--web.listen-address=127.0.0.1:{self.port}",
        ]

    def is_ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/-/ready", timeout=10) as answer:
                return bool(answer.status == 200)
        except (urllib.error.URLError, OSError):
            return False

    def get(self, path: str, **parameters: str) -> Any:
        url = f"http://127.0.0.1:{self.port}/api/v1/{path}?{urllib.parse.urlencode(parameters)}"
        with urllib.request.urlopen(url, timeout=60) as answer:
            return json.load(answer)["data"]

    def query(self, expr: str) -> list[tuple[dict[str, str], float]]:
        """(labels, value) of each element of an instant vector."""
        return [(each["metric"], float(each["value"][1])) for each in self.get("query", query=expr)["result"]]

    def value(self, expr: str) -> float | None:
        """The value of an expression with at most one element."""
        found = self.query(expr)
        assert len(found) <= 1, f"{expr} has {len(found)} elements"
        return found[0][1] if found else None
