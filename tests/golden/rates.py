"""Write rates.json, rates and token buckets as Apache Kafka's own classes measure them: `python -m tests.golden.rates`

Seeded values at seeded times, in steady streams, bursts and after pauses. Needs Java 17 and Kafka's jars (fetched once).
"""

from __future__ import annotations

import json
import random
import subprocess
from pathlib import Path
from typing import Any

from tests.kit.peers import KAFKA_4, java_command

HERE = Path(__file__).parent
WINDOWS = ((11, 1000), (11, 1000), (11, 1000), (2, 1000), (1, 1000), (5, 3000), (36, 200))


def cases() -> list[dict[str, Any]]:
    chance = random.Random(18)
    found = []
    for samples, sample_ms in WINDOWS:
        now_ms = 1_700_000_000_000
        values = []
        for _ in range(80):
            now_ms += chance.choice((0, 1, 7, 130, 450, sample_ms, sample_ms + 1, 3 * sample_ms, (samples + 1) * sample_ms))
            values.append([now_ms, chance.choice((0.0, 0.25, 1.0, 100.0, 5000.0, 1e6))])
        found.append({"samples": samples, "sample_ms": sample_ms, "limit": chance.choice((0.5, 10.0, 2000.0)), "values": values})
    return found


def main() -> None:
    found = cases()
    lines = []
    for case in found:
        lines.append(f"{case['samples']} {case['sample_ms']} {case['limit']}")
        lines += [f"+ {now_ms} {value}" for now_ms, value in case["values"]]
    command = java_command(KAFKA_4, str(HERE / "Rates.java"))
    output = subprocess.run(command, input="\n".join(lines), capture_output=True, text=True, check=True).stdout
    measured = iter(output.splitlines())
    for case in found:
        for value in case["values"]:
            rate, window_ms, tokens = next(measured).split()
            value += [float(rate), int(window_ms), float(tokens)]
    (HERE / "rates.json").write_text(json.dumps(found, indent=None, separators=(",", ":")).replace("]],", "]],\n") + "\n")


if __name__ == "__main__":
    main()
