"""Start time of a broker: `ottla.testing.Broker()`, the fixtures of the pytest plugin, and the command.

    python -m bench.starts        # 20 starts of each: median and maximum
    python -m bench.starts 100

Each start is a new process on an empty directory; stopping the previous broker is not counted. Run it on a quiet machine with
compiled modules.
"""

from __future__ import annotations

import argparse
import re
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from ottla.records import compiled
from ottla.testing import Broker

STARTS = 20

_TEST = """
def test_it(ottla_broker, ottla_topic):
    assert ottla_broker.bootstrap_servers
"""
_SETUP = re.compile(r"^([0-9.]+)s setup +\S+test_it$", re.MULTILINE)
_READY = re.compile(r"ready in (\d+) ms")


def with_testing() -> tuple[float, float]:
    """Seconds until `with Broker()` is inside, and what the broker itself says of it."""
    began = time.perf_counter()
    with Broker() as broker:
        took = time.perf_counter() - began
        said = _READY.search(broker.log)
        assert said is not None, broker.log
        return took, int(said[1]) / 1000


def with_pytest(directory: Path) -> float:
    """Seconds that pytest spends on the fixtures of the first test, a broker and a topic."""
    quietly = ["-q", "--durations=0", "-vv", "-p", "no:cacheprovider", "-c", "/dev/null"]
    words = [sys.executable, "-m", "pytest", *quietly, "test_one.py"]
    done = subprocess.run(words, cwd=directory, capture_output=True, text=True, timeout=120, check=False)
    found = _SETUP.search(done.stdout)
    if done.returncode or found is None:
        raise SystemExit(f"pytest ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return float(found[1])


def show(name: str, seconds: list[float]) -> None:
    print(f"{name:<44} median {statistics.median(seconds):.3f} s, longest {max(seconds):.3f} s, of {len(seconds)}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("count", nargs="?", type=int, default=STARTS, help=f"starts of each (default {STARTS})")
    count = parser.parse_args().count
    print("compiled" if compiled() else "not compiled")
    with_testing()  # the files are in the page cache, the bytecode is written
    both = [with_testing() for _ in range(count)]
    show("with ottla.testing.Broker()", [took for took, _ in both])
    show("of which the broker's process, by its log", [said for _, said in both])
    with tempfile.TemporaryDirectory(prefix="ottla-starts-") as scratch:
        (Path(scratch) / "test_one.py").write_text(_TEST)
        show("pytest: ottla_broker and ottla_topic", [with_pytest(Path(scratch)) for _ in range(count)])


if __name__ == "__main__":
    main()
