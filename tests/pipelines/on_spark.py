"""`python -m tests.pipelines.on_spark 4.1 4.2`: the tests of pipelines on other releases of Spark.

Tests of what a release lacks are in the same files.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.kit.sparks import RELEASES, environment

HERE = Path(__file__).parent


def main() -> int:
    failed = []
    for release in sys.argv[1:] or ["4.1", "4.2"]:
        print(f"Spark {RELEASES[release]}", flush=True)
        words = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", "not slow and not reference", str(HERE)]
        if subprocess.run(words, env=environment(release)).returncode:
            failed.append(release)
    if failed:
        print(f"failed on Spark {', '.join(failed)}")
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())
