"""The tests of this folder that ask no more of a broker than to be there, on three of them with three replicas of each topic.

Left out is what starts brokers of its own, and what knows that there is one: its number, its directory, its files.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent

SUITES = {
    "aiokafka": ["aiokafka"],
    "compaction": ["compaction"],
    "confluent-kafka": ["confluent"],
    "groups": ["groups/test_groups_confluent.py", "groups/test_groups_python.py", "groups/test_groups_kcat.py"],
    "groups, Java": ["groups/test_groups_java.py"],
    "groups848": ["groups848/test_groups848_confluent.py"],
    "groups848, Java": ["groups848/test_groups848_java.py"],
    "Java's tools": ["java/test_java_tools.py", "java/test_group_command.py"],
    "kafka-python": ["kafka_python/test_kafka_python.py"],
    "kcat": ["kcat"],
    "matrix": ["matrix"],
    "transactions": [f"transactions/test_txn_{name}.py" for name in ("confluent", "blocking", "python")],
    "transactions, Java": ["transactions/test_txn_java.py"],
}


@pytest.mark.slow
@pytest.mark.parametrize("suite", SUITES)
def test_it_passes_on_three_brokers(suite: str) -> None:
    command = [sys.executable, "-m", "pytest", "-q", "--tb=short", "-p", "no:cacheprovider", "-m", "not slow"]
    environment = {**os.environ, "OTTLA_COMPAT_BROKERS": "3"}
    done = subprocess.run(
        [*command, *(str(HERE / path) for path in SUITES[suite])], env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout[-8000:]
