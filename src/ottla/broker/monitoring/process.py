"""The process: CPU, memory, files, disk, start time. Read from /proc; where there is none, only what Python knows."""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Iterator

from ottla.metrics.family import Family, single
from ottla.metrics.table import METRICS


def process_families() -> Iterator[Family]:
    for name, value in _values().items():
        yield single(METRICS[name], value)


def _values() -> dict[str, float]:
    values: dict[str, float] = {"process_cpu_seconds_total": round(time.process_time(), 3)}
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    values["process_max_fds"] = soft
    try:
        with open("/proc/self/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
        ticks, page = os.sysconf("SC_CLK_TCK"), os.sysconf("SC_PAGE_SIZE")
        started = time.time() - time.clock_gettime(time.CLOCK_BOOTTIME) + int(fields[19]) / ticks
        values["process_start_time_seconds"] = round(started, 2)
        values["process_virtual_memory_bytes"] = int(fields[20])
        values["process_resident_memory_bytes"] = int(fields[21]) * page
        values["process_open_fds"] = len(os.listdir("/proc/self/fd")) - 1
        values.update(_disk_bytes())
    except (OSError, ValueError, IndexError, AttributeError):
        pass  # not Linux
    return values


def _disk_bytes() -> dict[str, float]:
    with open("/proc/self/io", "rb") as file:
        pairs = dict(line.split(b": ") for line in file.read().splitlines())
    return {
        "kafka_server_kafkaserver_linux_disk_read_bytes": int(pairs[b"read_bytes"]),
        "kafka_server_kafkaserver_linux_disk_write_bytes": int(pairs[b"write_bytes"]),
    }
