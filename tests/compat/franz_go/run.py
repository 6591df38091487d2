"""Run franz-go's kgo suite against the chosen broker (`make compat CLIENT=franz_go`).

The module is downloaded with Go, copied out of the read-only module cache, and its test binary is built once; later runs need no
network. Usage:

    python -m tests.compat.franz_go.run [-k REGEX] [--broker ottla|kafka-4.3.0|host:port] [--brokers 3] [--records 20000]
    python -m tests.compat.franz_go.run --secured: on Ottla over TLS, and the tests of SCRAM on a listener of their own
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from ottla.testing import Security
from tests.kit.peers import MissingCounterpart, fetching, free_ports, program
from tests.kit.ratchet import allowed, judge, missed
from tests.kit.subject import broker_count, running

HERE = Path(__file__).parent
VERSION = "v1.22.2"
MODULE = f"github.com/twmb/franz-go@{VERSION}"
INSTALL_GO = "install Go 1.26 or newer (the suite is written in it)"


def suite() -> Path:
    """The folder in the cache with the sources and the built test binary `kgo.test`."""
    name = f"franz-go-{VERSION}"
    with fetching(name) as path:
        if not (path / "kgo.test").exists():
            go = program("go", INSTALL_GO)
            found = subprocess.run([go, "mod", "download", "-json", MODULE], capture_output=True, text=True, cwd="/")
            if found.returncode:
                raise MissingCounterpart(f"{MODULE} could not be downloaded (no network?):\n{found.stdout}{found.stderr}")
            with tempfile.TemporaryDirectory(dir=path.parent, prefix=f"{name}.") as scratch:
                copy = Path(scratch, "suite")
                shutil.copytree(json.loads(found.stdout)["Dir"], copy)
                subprocess.run(["chmod", "-R", "u+w", str(copy)], check=True)
                built = subprocess.run(
                    [go, "test", "-c", "-o", "kgo.test", "./pkg/kgo"], cwd=copy, capture_output=True, text=True
                )
                if built.returncode:
                    raise MissingCounterpart(f"the kgo suite did not build:\n{built.stderr[-2000:]}")
                if path.exists():
                    shutil.rmtree(path)
                copy.rename(path)
        return path


def whole(names: Iterable[str]) -> str:
    """Go's pattern for these tests, of which a subtest is run with its test."""
    return "^(" + "|".join(sorted({name.split("/")[0] for name in names})) + ")$"


def outcomes_of(command: list[str], cwd: Path, environment: dict[str, str]) -> dict[str, str]:
    outcomes: dict[str, str] = {}
    process = subprocess.Popen(command, cwd=cwd, env=environment, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    said: dict[str, list[str]] = {}
    for line in process.stdout:
        event = json.loads(line)
        test = event.get("Test")
        if test is None:
            continue
        said.setdefault(test, []).append(event.get("Output", ""))
        outcome = {"pass": "passed", "fail": "failed", "skip": "skipped"}.get(event["Action"])
        if outcome:
            outcomes[test] = outcome
            print(f"{outcome:7} {event.get('Elapsed', 0):6.1f} s  {test}", flush=True)
            if outcome == "failed":
                print("        " + "        ".join("".join(said[test])[-3000:].splitlines(keepends=True)), flush=True)
    process.wait()
    for test in said:
        outcomes.setdefault(test, "failed")  # it was cut off: a panic or the time limit
    return outcomes


def secured(folder: Path) -> tuple[dict[str, str], dict[str, str]]:
    """A TLS listener for the suite and a SCRAM listener for its tests of that: settings of Ottla, environment of the suite."""
    tls, scram = free_ports(2)
    users = Security("SASL_PLAINTEXT", mechanisms=("SCRAM-SHA-256",), acls=False)
    settings = Security("SSL", acls=False).write(folder) | users.write(folder)
    settings["listeners"] = f"SSL://127.0.0.1:{tls},SASL_PLAINTEXT://127.0.0.1:{scram}"
    settings["security.inter.broker.protocol"] = "SSL"
    # One file has both: Go reads a certificate and a key from wherever they are in it.
    client = folder / "user-alice.pem"
    environment = {
        "KGO_SEEDS": f"127.0.0.1:{tls}",
        "KGO_TEST_TLS": f"ca:{folder / 'ca.pem'},cert:{client},key:{client}",
        "KGO_TEST_SCRAM": f"alice:{users.users['alice']}:256",
        "KGO_TEST_SCRAM_SEEDS": f"127.0.0.1:{scram}",
    }
    return settings, environment


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-k", dest="run", help="Go's -test.run; default: the tests of tests.allow")
    parser.add_argument("--all", action="store_true", help="every test of the suite, also those that need groups")
    parser.add_argument("--broker", help="ottla (default), kafka-4.3.0, kafka-3.9.2, host:port")
    parser.add_argument("--brokers", type=int, default=broker_count(), help="a cluster of so many; topics get three replicas")
    parser.add_argument("--records", type=int, default=20_000)
    parser.add_argument("--timeout", default="14m")
    parser.add_argument("--secured", action="store_true", help="over TLS, with the tests of SCRAM; one broker of Ottla")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="ottla-franz-") as scratch:
        return run(options, *(secured(Path(scratch)) if options.secured else ({}, {})))


def run(options: argparse.Namespace, settings: dict[str, Any], secrets: dict[str, str]) -> int:
    allow = HERE / ("tests.secured.allow" if options.secured else "tests.allow")
    pattern = options.run or ("" if options.all else whole(allowed(allow)))
    root = suite()
    with running("ottla" if options.secured else options.broker, brokers=options.brokers, **settings) as broker:
        environment = {
            **os.environ,
            "KGO_SEEDS": broker.bootstrap_servers,
            "KGO_TEST_RF": str(broker.replicas),
            "KGO_TEST_RECORDS": str(options.records),
            **secrets,
        }
        binary = [str(root / "kgo.test"), "-test.v=test2json", f"-test.timeout={options.timeout}"]
        command = [program("go", INSTALL_GO), "tool", "test2json", "-t", *binary]

        def attempt(pattern: str, parallel: int) -> dict[str, str]:
            words = [f"-test.run={pattern}", f"-test.parallel={parallel}"]
            return outcomes_of([*command, *words], root / "pkg" / "kgo", environment)

        outcomes = attempt(pattern, 6)  # most of their time is their own waits
        again = missed(outcomes, allow, only=options.run)
        if again:
            print(f"\nonce more, alone: {', '.join(again)}", flush=True)
            outcomes |= attempt(whole(again), 1)
        complaints = broker.complaints()
    if complaints:
        print(f"\nthe broker said:\n{complaints}")
    return judge(outcomes, allow, only=options.run)


if __name__ == "__main__":
    sys.exit(main())
