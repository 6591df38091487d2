"""Run confluent-kafka-python's integration tests of its schema registry clients and serializers against Ottla's registry.

python -m tests.compat.confluent_registry.run [-k PART]
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from ottla.testing import Broker, Registry
from tests.kit.ratchet import allowed, judge
from tests.kit.suites import environment, outcomes_of, sources

HERE = Path(__file__).parent
VERSION = "v2.15.0"
REPOSITORY = "https://github.com/confluentinc/confluent-kafka-python"
PACKAGES = [
    "confluent-kafka[schema-registry,avro,json,protobuf,rules]==2.15.0",
    "trivup",
    "pytest",
    "pytest-asyncio",
    "pytest-timeout",
]
FOLDER = "tests/integration/schema_registry"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-k", dest="only", help="only tests whose name contains this")
    parser.add_argument("--all", action="store_true", help="also those that need not pass")
    options = parser.parse_args()
    suite = sources("confluent-kafka-python", VERSION, REPOSITORY)
    python = environment(f"confluent-registry-{VERSION}", PACKAGES)
    allow = HERE / "tests.allow"
    with (
        tempfile.TemporaryDirectory() as scratch,
        Broker({"group.initial.rebalance.delay.ms": 0}) as broker,
        Registry(broker) as registry,
    ):
        report = Path(scratch, "report.xml")
        command = [str(python), "-m", "pytest", "-q", "-ra", "--tb=short", "-p", "no:cacheprovider", "-p", "own_cluster"]
        command += ["--import-mode=importlib", "--timeout=60", f"--junitxml={report}", FOLDER]
        command += ["-k", options.only] if options.only else []
        servers = {"BROKERS": broker.bootstrap_servers, "SR_URL": registry.url}
        older = {f"{name}_7_0_1": value for name, value in servers.items()}
        subprocess.run(
            command, cwd=suite, env={**os.environ, **servers, **older, "PYTHONPATH": str(HERE), "PYTHONDONTWRITEBYTECODE": "1"}
        )
        outcomes = outcomes_of(report)
    if not options.all and not options.only:
        outcomes = {name: outcome for name, outcome in outcomes.items() if outcome == "passed" or name in allowed(allow)}
    return judge(outcomes, allow, only=options.only)


if __name__ == "__main__":
    sys.exit(main())
