"""Disks of brokers, and the file limit of brokers that run on this machine."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from ottla.cli.doctor.case import Case
from ottla.cli.doctor.finding import Finding, Severity
from ottla.cli.doctor.reach import is_here
from ottla.cli.failure import Failure
from ottla.cli.log_dirs.view import LogDirs
from ottla.cli.output import size_text

_LOW, _VERY_LOW = 0.15, 0.05
_FILES_MIN = 10_000
_FILES_USED_MAX = 0.7


def disks(case: Case) -> Iterator[Finding]:
    log_dirs = LogDirs(case.connection)
    for broker in case.brokers:
        where = f"ottla log-dirs --broker {broker.broker_id}"
        try:
            directories = log_dirs.of(broker.broker_id)
        except Failure as failure:
            severity = Severity.WARNING if failure.code == "BROKER_AWAY" else Severity.INFO
            yield Finding("disks", severity, f"broker {broker.broker_id}", failure.message, failure.hint or where)
            continue
        for each in directories:
            subject = f"broker {broker.broker_id} {each.path}"
            if each.error is not None:
                what = f"the directory is offline ({each.error})"
                yield Finding(
                    "disks", Severity.ERROR, subject, what, "mend the disk, then restart the broker; its log says what failed"
                )
            elif each.usable_bytes is not None and each.total_bytes:
                share = each.usable_bytes / each.total_bytes
                if share < _LOW:
                    severity = Severity.ERROR if share < _VERY_LOW else Severity.WARNING
                    what = f"{size_text(each.usable_bytes)} of {size_text(each.total_bytes)} are free ({share:.0%})"
                    largest = max(each.replicas, key=lambda replica: replica.size_bytes, default=None)
                    mend = (
                        f"{where} --replicas"
                        if largest is None
                        else f"ottla delete-records {largest.topic} --before 7d --dry-run"
                    )
                    yield Finding("disks", severity, subject, what, mend)


def file_limits(case: Case) -> Iterator[Finding]:
    """Only of brokers on this machine whose process this user may look at."""
    for broker in case.brokers:
        assert broker.address is not None
        host, port = broker.address
        process = _listening(port) if is_here(host) else None
        if process is None:
            continue
        with suppress(OSError, ValueError, IndexError):
            limits = (process / "limits").read_text()
            soft = re.search(r"Max open files\s+(\S+)", limits)
            if soft is None or soft[1] == "unlimited":
                continue
            used = len(os.listdir(process / "fd"))
            limit = int(soft[1])
            subject = f"broker {broker.broker_id} (process {process.name})"
            mend = "LimitNOFILE=100000 in its systemd unit, or ulimit -n 100000 before it starts"
            if used > _FILES_USED_MAX * limit:
                yield Finding("files", Severity.ERROR, subject, f"{used} of {limit} file descriptors are in use", mend)
            elif limit < _FILES_MIN:
                yield Finding("files", Severity.WARNING, subject, f"it may open only {limit} files and connections", mend)


def _listening(port: int) -> Path | None:
    """The directory in /proc of the process that listens on a port. None: nobody, another user's, or no Linux."""
    inodes = set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        with suppress(OSError):
            for line in Path(table).read_text().splitlines()[1:]:
                words = line.split()
                if words[3] == "0A" and int(words[1].rpartition(":")[2], 16) == port:
                    inodes.add(f"socket:[{words[9]}]")
    if not inodes:
        return None
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            for descriptor in (process / "fd").iterdir():
                with suppress(OSError):
                    if os.readlink(descriptor) in inodes:
                        return process
    return None
