"""Run Karapace's integration tests of its REST API against Ottla's registry. They need Python 3.12 or newer.

python -m tests.compat.karapace.run [-k PART]
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from ottla.testing import Broker, Registry
from tests.kit.peers import MissingCounterpart
from tests.kit.ratchet import allowed, judge
from tests.kit.suites import environment, outcomes_of, sources

HERE = Path(__file__).parent
VERSION = "6.2.0"
REPOSITORY = "https://github.com/Aiven-Open/karapace"
FILES = [
    f"tests/integration/test_{name}.py"
    for name in (
        "schema",
        "schema_avro_references",
        "schema_compatibility",
        "jsonschema",
        "schema_protobuf",
        "schema_registry_mode",
        "dependencies_compatibility_protobuf",
    )
]
_PATCHED = "avro @"
"""A fork that only the server needs: the released one is enough to import it."""


def python() -> str:
    for name in ("python3.12", "python3.13", "python3.14"):
        candidates = [
            shutil.which(name),
            *map(str, Path.home().glob(f".pyenv/versions/{name.removeprefix('python')}*/bin/{name}")),
        ]
        for path in filter(None, candidates):
            if subprocess.run([path, "--version"], capture_output=True).returncode == 0:
                return path
    raise MissingCounterpart("Karapace's suite needs Python 3.12 or newer: install python3.12")


def requirements(suite: Path) -> list[str]:
    lines = (suite / "requirements" / "requirements-dev.txt").read_text().splitlines()
    pinned = [line for line in lines if line and not line.startswith((" ", "#", _PATCHED))]
    return [*pinned, "avro==1.12.0"]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-k", dest="only", help="only tests whose name contains this")
    parser.add_argument("--all", action="store_true", help="name also those that need not pass")
    options = parser.parse_args()
    suite = sources("karapace", VERSION, REPOSITORY)
    program = environment(f"karapace-suite-{VERSION}", requirements(suite), python())
    allow = HERE / "tests.allow"
    with (
        tempfile.TemporaryDirectory() as scratch,
        Broker({"group.initial.rebalance.delay.ms": 0}) as broker,
        Registry(broker) as registry,
    ):
        report = Path(scratch, "report.xml")
        command = [
            str(program),
            "-m",
            "pytest",
            "-q",
            "--tb=short",
            "-o",
            "addopts=--import-mode=importlib",
            "-p",
            "own_registry",
        ]
        command += ["-p", "no:cacheprovider", "--timeout=90", f"--junitxml={report}", *FILES]
        command += ["--registry-url", registry.url, "--kafka-bootstrap-servers", broker.bootstrap_servers]
        command += ["-k", options.only] if options.only else []
        paths = os.pathsep.join([str(suite / "src"), str(HERE)])
        subprocess.run(command, cwd=suite, env={**os.environ, "PYTHONPATH": paths, "PYTHONDONTWRITEBYTECODE": "1"})
        outcomes = outcomes_of(report)
    if not options.all and not options.only:
        outcomes = {name: outcome for name, outcome in outcomes.items() if outcome == "passed" or name in allowed(allow)}
    return judge(outcomes, allow, only=options.only)


if __name__ == "__main__":
    sys.exit(main())
