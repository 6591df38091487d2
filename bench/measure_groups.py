"""Figures of groups: the cost of 1,000 small groups, and the duration of a rebalance of a large one."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

from bench import ROOT
from bench.measure import Cost, Figures, Scale, Server, create
from bench.servers import usage


def loads(server: Server, kind: str, *, module: str = "groups", **options: Any) -> Iterator[tuple[dict[str, Any], Cost]]:
    """Runs a generator that says `begin`; for each measured load, what it says and what the broker spent meanwhile."""
    command = [sys.executable, "-m", f"bench.{module}", kind, json.dumps({"bootstrap": server.bootstrap_servers, **options})]
    with subprocess.Popen(
        command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        while process.stdout.readline():  # begin
            spent = Cost()
            before, started = usage(server.pid), time.perf_counter()
            process.stdin.write("\n")
            process.stdin.flush()
            line = process.stdout.readline()
            spent.seconds = time.perf_counter() - started
            spent.cpu_s = usage(server.pid).cpu_s - before.cpu_s
            if line:
                yield json.loads(line), spent
        process.stdin.close()
        said = process.stderr.read()
    if process.returncode:
        raise RuntimeError(f"{module} {kind} {options}:\n{said[-3000:]}")


def in_service(server: Server, scale: Scale) -> Figures:
    """1,000 groups of one member on 50 connections: heartbeats, then commits of four partitions, each waits for its answer."""
    create(server, "grouped", 4)
    figures: Figures = {}
    measured = loads(
        server, "steady", topic="grouped", groups=scale.groups, partitions=4, connections=50,
        heartbeats=scale.group_requests, commits=scale.group_requests,
    )  # fmt: skip
    for name, (found, spent) in zip(("heartbeat", "commit"), measured, strict=True):
        figures[f"group_{name}s"] = found["requests"] / found["seconds"]
        figures[f"group_{name}_cpu"] = spent.cpu_s / found["requests"] * 1e6
    return figures


def rebalances(server: Server, scale: Scale) -> Figures:
    """100 members over 1,000 partitions, in the classic protocol and in the new one."""
    create(server, "shared", 1_000)
    figures: Figures = {}
    for kind in ("rebalance", "rebalance848"):
        for found, spent in loads(server, kind, topic="shared", members=100, partitions=1_000, rounds=scale.rebalances):
            figures[kind] = found["seconds"] / found["rounds"] * 1e3
            figures[f"{kind}_cpu"] = spent.cpu_s / found["rounds"] * 1e3
    return figures
