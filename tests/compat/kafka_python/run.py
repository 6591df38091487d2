"""Run kafka-python's own integration suite, from its sdist, against the chosen broker (`make compat CLIENT=kafka_python`).

Its SASL and TLS tests start brokers of their own and are left out. Usage:

    python -m tests.compat.kafka_python.run [-k PART] [--broker ottla|kafka-4.3.0|host:port] [--brokers 3]
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tarfile
import tempfile
import xml.etree.ElementTree as xml
from pathlib import Path
from typing import Any

from tests.kit.peers import MissingCounterpart, fetching, free_ports
from tests.kit.ratchet import allowed, judge, missed
from tests.kit.subject import broker_count, chosen, running

HERE = Path(__file__).parent
VERSION = "3.0.12"
FILES = ["test_admin_integration.py", "test_consumer_integration.py", "test_producer_integration.py"]
# The sdist leaves these two out. `test` must be a package to win over the standard library's, and with an external
# broker (KAFKA_URI) all that is asked of `service` is to exist.
MISSING = {
    "test/__init__.py": "",
    "test/service.py": """
class ExternalService:
    def __init__(self, host, port):
        self.host, self.port = host, port
    def open(self): pass
    def close(self): pass
    def stop(self): pass
    def dump_logs(self): pass

class SpawnedService:
    def __init__(self, *args, **kwargs):
        raise RuntimeError("this runner uses a broker that runs already")
""",
}


def suite() -> Path:
    """The unpacked sdist in the cache, fetched once."""
    name = f"kafka_python-{VERSION}"
    with fetching(name) as path:
        if not (path / "test" / "service.py").exists():
            with tempfile.TemporaryDirectory(dir=path.parent, prefix=f"{name}.") as scratch:
                command = [
                    sys.executable,
                    "-m",
                    "pip",
                    "download",
                    "-q",
                    "--no-deps",
                    "--no-binary",
                    ":all:",
                    f"kafka-python=={VERSION}",
                ]
                done = subprocess.run([*command, "-d", scratch], capture_output=True, text=True)
                if done.returncode:
                    raise MissingCounterpart(
                        f"the sdist of kafka-python {VERSION} could not be fetched with pip:\n{done.stderr[-2000:]}"
                    )
                with tarfile.open(next(Path(scratch).glob("*.tar.gz"))) as archive:
                    archive.extractall(scratch, filter="data")
                unpacked = Path(scratch, name)
                for missing, text in MISSING.items():
                    (unpacked / missing).write_text(text)
                if path.exists():
                    subprocess.run(["rm", "-rf", str(path)], check=True)
                unpacked.rename(path)
        return path


def path_of(name: str) -> str:
    return f"test/integration/{name.replace('::', '.py::', 1)}"


def outcomes_of(report: Path) -> dict[str, str]:
    """None, if pytest came to no end."""
    outcomes: dict[str, str] = {}
    if not report.exists():
        return outcomes
    for case in xml.parse(report).iter("testcase"):
        kind = {"failure": "failed", "error": "failed", "skipped": "skipped"}.get(
            next((child.tag for child in case), ""), "passed"
        )
        module = (case.get("classname") or "").removeprefix("test.integration.")
        outcomes[f"{module}::{case.get('name')}"] = kind
    return outcomes


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-k", dest="only", help="only tests whose name contains this")
    parser.add_argument("--all", action="store_true", help="also those that need groups, transactions, ACLs")
    parser.add_argument("--broker", help="ottla (default), kafka-4.3.0, kafka-3.9.2, host:port")
    parser.add_argument("--brokers", type=int, default=broker_count(), help="a cluster of so many")
    parser.add_argument("--test-timeout", type=int, default=180)
    options = parser.parse_args()
    root = suite()
    allow = HERE / ("tests.allow" if options.brokers == 1 else "tests.three.allow")
    settings: dict[str, Any] = {"num.partitions": 4}
    if (options.broker or chosen()) == "ottla" and options.brokers == 1:
        # The suite expects a broker whose advertised.listeners were set, as its own fixture does.
        plain = f"PLAINTEXT://127.0.0.1:{free_ports(1)[0]}"
        settings |= {"listeners": plain, "advertised.listeners": plain}
    with (
        tempfile.TemporaryDirectory() as scratch,
        running(options.broker, broker_id=0, brokers=options.brokers, **settings) as broker,
    ):
        report = Path(scratch, "report.xml")
        command = [sys.executable, "-m", "pytest", "-q", "-ra", "--tb=short", "-p", "no:cacheprovider", "-p", "no:ottla"]
        command += ["-o", "addopts=", "-o", "log_level=WARNING", f"--timeout={options.test_timeout}", f"--junitxml={report}"]
        if broker.replicas > 1:
            command += ["-p", "replicated"]
        environment = {
            **os.environ,
            "KAFKA_URI": f"kafka://{broker.host}:{broker.port}",
            "KAFKA_ROOT": scratch,
            "KAFKA_VERSION": os.environ.get("KAFKA_VERSION", "4.3.0"),
            "PYTHONPATH": f"{root}:{HERE}",
            "TEST_REPLICAS": str(broker.replicas),
            "PYTHONDONTWRITEBYTECODE": "1",
        }

        def attempt(*words: str) -> dict[str, str]:
            report.unlink(missing_ok=True)
            subprocess.run([*command, *words], cwd=root, env=environment)
            return outcomes_of(report)

        if options.all or options.only:
            outcomes = attempt(*(["-k", options.only] if options.only else []), *(f"test/integration/{file}" for file in FILES))
        else:
            outcomes = attempt(*map(path_of, allowed(allow)))
        for name in missed(outcomes, allow, only=options.only):
            print(f"\nonce more, alone: {name}", flush=True)
            outcomes |= attempt(path_of(name))
        complaints = broker.complaints()
    if complaints:
        print(f"\nthe broker said:\n{complaints}")
    return judge(outcomes, allow, only=options.only)


if __name__ == "__main__":
    sys.exit(main())
