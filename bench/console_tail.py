"""A page of the console that follows a fast topic: does the memory of browser and console stay flat?

    python -m bench.console_tail [--kafka] [--minutes 10] [--rate 50000] [--size 100]

One broker, Ottla or (`--kafka`) Apache Kafka, a producer at the rate, a console, and Chromium on the live records of the topic. A
line every half minute: records per second that were written and that the console has read, memory of the console (VmRSS), heap of
the page after a collection, and memory of the page's process.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition
from playwright.sync_api import CDPSession, sync_playwright

from bench.servers import Kafka, Ottla
from tests.console.browser.conftest import FLAGS
from tests.console.running import running_console
from tests.kit.peers import chromium

TOPIC = "fast"
EVERY_S = 30.0
_SLICE_S = 0.02


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kafka", action="store_true", help="Apache Kafka instead of Ottla")
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--rate", type=int, default=50_000)
    parser.add_argument("--size", type=int, default=100)
    parser.add_argument("--produce-to", help=argparse.SUPPRESS)
    return parser.parse_args()


def produce(servers: str, options: argparse.Namespace) -> None:
    """At the rate, until it is killed. A second that was missed is not made up for."""
    producer = Producer({"bootstrap.servers": servers, "linger.ms": 20, "compression.type": "lz4", "log_level": 0})
    value, each, due_s = b"x" * options.size, int(options.rate * _SLICE_S), time.monotonic()
    while True:
        for _ in range(each):
            try:
                producer.produce(TOPIC, value)
            except BufferError:
                break
        producer.poll(0)
        due_s = max(due_s + _SLICE_S, time.monotonic() - 1)
        time.sleep(max(due_s - time.monotonic(), 0))


def rss_mb(pid: int) -> float:
    found = re.search(r"VmRSS:\s+(\d+)", Path(f"/proc/{pid}/status").read_text())
    return int(found[1]) / 1024 if found else 0.0


def renderers_mb() -> float:
    """The largest of the browser's processes for pages."""
    listed = subprocess.run(["ps", "-eo", "pid=,args="], capture_output=True, text=True, check=True).stdout
    pids = [int(line.split()[0]) for line in listed.splitlines() if "--type=renderer" in line and "chromium" in line]
    return max((rss_mb(pid) for pid in pids if Path(f"/proc/{pid}").exists()), default=0.0)


def figure(url: str, name: str) -> float:
    with urllib.request.urlopen(f"{url}/metrics", timeout=60) as answer:
        lines = answer.read().decode().splitlines()
    return next(float(line.split()[-1]) for line in lines if line.startswith(f"{name} "))


def written(consumer: Consumer) -> int:
    """The records of the topic."""
    partitions = consumer.list_topics(TOPIC, timeout=30).topics[TOPIC].partitions
    return sum(consumer.get_watermark_offsets(TopicPartition(TOPIC, number), timeout=30)[1] for number in partitions)


def heap_mb(devtools: CDPSession) -> float:
    devtools.send("HeapProfiler.collectGarbage")
    found: dict[str, Any] = devtools.send("Runtime.getHeapUsage")
    return float(found["usedSize"]) / 1e6


def watch(servers: str, options: argparse.Namespace) -> None:
    with running_console(servers) as console, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium(), args=FLAGS)
        page = browser.new_page()
        page.goto(f"{console.url}/topics/{TOPIC}/records?live=1")
        devtools = page.context.new_cdp_session(page)
        consumer = Consumer({"bootstrap.servers": servers, "group.id": "bench", "log_level": 0})
        began_s = time.monotonic()
        before = began_s, written(consumer), figure(console.url, "ottla_console_scanned_records_total")
        while time.monotonic() - began_s < options.minutes * 60 + EVERY_S / 2:
            page.wait_for_timeout(EVERY_S * 1000)
            now = time.monotonic(), written(consumer), figure(console.url, "ottla_console_scanned_records_total")
            wrote, read = ((now[each] - before[each]) / (now[0] - before[0]) for each in (1, 2))
            before = now
            rows = page.locator("tbody tr.row-line").count()
            memory, heap, process = rss_mb(console.process.pid), heap_mb(devtools), renderers_mb()
            print(
                f"{(now[0] - began_s) / 60:5.1f} min: {wrote:,.0f} records/s written, {read:,.0f} read; console {memory:5.0f} MB,"
                f" heap of the page {heap:5.1f} MB, its process {process:5.0f} MB, {rows} rows",
                flush=True,
            )
        consumer.close()
        browser.close()


def main() -> None:
    options = arguments()
    if options.produce_to:
        produce(options.produce_to, options)
        return
    with (Kafka if options.kafka else Ottla)() as broker:
        words = [sys.executable, "-m", "bench.console_tail", "--rate", str(options.rate), "--size", str(options.size)]
        with subprocess.Popen([*words, "--produce-to", broker.bootstrap_servers]) as producing:
            try:
                watch(broker.bootstrap_servers, options)
            finally:
                producing.kill()


if __name__ == "__main__":
    main()
