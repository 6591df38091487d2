"""Smoke test of an installed Ottla: `python packaging/smoke.py [--expect compiled|interpreted]`

With the interpreter that has Ottla installed: starts `ottla serve` on a free port, produces one record and consumes it with
confluent-kafka, and stops the broker. Uses nothing of the checkout.
"""

from __future__ import annotations

import argparse
import signal
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

TIMEOUT_S = 60
WARNING = "The hot modules are not compiled"


def ottla(*words: str) -> str:
    command = [str(Path(sys.executable).with_name("ottla")), *words]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=TIMEOUT_S).stdout


def one_record(bootstrap_servers: str) -> None:
    from confluent_kafka import Consumer, Producer

    producer = Producer({"bootstrap.servers": bootstrap_servers})
    producer.produce("smoke", b"value", b"key")
    assert producer.flush(TIMEOUT_S) == 0, "the record is not acknowledged"
    consumer = Consumer({"bootstrap.servers": bootstrap_servers, "group.id": "smoke", "auto.offset.reset": "earliest"})
    consumer.subscribe(["smoke"])
    message = consumer.poll(TIMEOUT_S)
    assert message is not None, "no record is read"
    assert message.error() is None, message.error()
    assert (message.key(), message.value()) == (b"key", b"value")
    consumer.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--expect", choices=["compiled", "interpreted"])
    expected = parser.parse_args().expect
    version = ottla("--version").strip()
    with tempfile.TemporaryDirectory(prefix="ottla-smoke-") as scratch:
        command = [str(Path(sys.executable).with_name("ottla")), "serve", "--set", "listeners=PLAINTEXT://127.0.0.1:0"]
        broker = subprocess.Popen(command, cwd=scratch, stderr=subprocess.PIPE, text=True)
        watchdog = threading.Timer(TIMEOUT_S, broker.kill)
        watchdog.start()
        assert broker.stderr is not None
        lines: list[str] = []
        for line in broker.stderr:
            lines.append(line)
            if " ready in " in line:
                break
        watchdog.cancel()
        said = "".join(lines)
        assert lines, "the broker said nothing"
        assert " ready in " in lines[-1], said
        form = lines[-1].rstrip().rpartition(", ")[2]
        assert expected in (None, form), f"expected {expected}:\n{said}"
        assert (WARNING in said) == (form == "interpreted"), said
        try:
            address = lines[-1].partition("://")[2].partition(",")[0]
            one_record(address)
        finally:
            broker.send_signal(signal.SIGTERM)
            rest = broker.stderr.read()
            code = broker.wait(TIMEOUT_S)
        assert code == 0, f"exit code {code}:\n{rest}"
    print(f"{version}, {form}: one record produced and consumed, clean stop")


if __name__ == "__main__":
    main()
