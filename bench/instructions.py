"""Instructions of one request inside the broker, counted by callgrind. A busy machine does not disturb them, as it does times.

    python -m bench.instructions                          # by kind of request, a minute or two
    python -m bench.instructions commit heartbeat         # only these kinds
    python -m bench.instructions --with metrics           # the broker has metrics.listener
    python -m bench.instructions --with acls quotas       # 10,000 ACLs; quotas for every user, which nobody exceeds
    python -m bench.instructions --tree DIR [--tree DIR]  # other checkouts, each compiled and with its .venv, side by side

As in `bench.inside`, broker, log and connections are real, and what puts a request into the buffer is taken off. Needs valgrind.
"""

from __future__ import annotations

import argparse
import gc
import os
import re
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from bench import group_frames as groups
from bench.inside import AUTHORIZER, HEAD_ROOM, QUOTAS, Idempotent, Inside, fetch_frame, produce_frame, set_acls, started
from bench.inside_groups import Team
from ottla.cli.serve import GC_THRESHOLDS
from ottla.runtime.loop import run

PARTITIONS = 6
GROUPS = 60
WARM_UP, REQUESTS = 1_000, 4_000
NOTHING = "nothing"
"""A request that is put into the buffer and not handled."""
SETTINGS: dict[str, dict[str, str]] = {"metrics": {"metrics.listener": "127.0.0.1:0"}, "acls": AUTHORIZER, "quotas": {}}
"""Of what `--with` names."""
KINDS = ("produce", "idempotent", "fetch", "heartbeat", "commit")


async def _teams(inside: Inside) -> list[Team]:
    """Groups of one member."""
    await inside.broker.groups.shards.topic.leader_of("")
    teams = [Team(inside, f"group-{number:02}", 1) for number in range(GROUPS)]
    for team in teams:
        await team.join()
    return teams


def _put(inside: Inside, at: int, frame: bytearray) -> None:
    connection, size = inside.connections[at % len(inside.connections)], len(frame)
    connection.get_buffer(65536)
    inside.broker.server.memory.shared[HEAD_ROOM : HEAD_ROOM + size] = frame


def _send(inside: Inside, at: int, frame: bytearray) -> None:
    inside.send(inside.connections[at % len(inside.connections)], frame)


async def child(kinds: list[str], features: list[str]) -> None:
    """Send the requests. Callgrind writes its counts whenever this asks for the parent's id."""
    gc.set_threshold(*GC_THRESHOLDS)  # as in service
    settings = {"group.initial.rebalance.delay.ms": "0"}
    for feature in features:
        settings |= SETTINGS[feature]
    async with started(PARTITIONS, settings) as inside:
        if "acls" in features:
            set_acls(inside.broker)
        if "quotas" in features:
            inside.broker.quotas.configure(QUOTAS["of every user"])
        teams = await _teams(inside)
        offset = iter(range(1 << 40))
        made: dict[str, Callable[[int], list[bytearray]]] = {
            NOTHING: lambda count: [bytearray(100)] * count,
            "produce": lambda count: [produce_frame(at % PARTITIONS, 1, 9) for at in range(count)],
            "idempotent": Idempotent().frames,
            "fetch": lambda count: [fetch_frame(at % PARTITIONS, 12) for at in range(count)],
            "heartbeat": lambda count: [
                bytearray(groups.heartbeat(team.group, team.generation, team.ids[0]))
                for team in (teams[at % GROUPS] for at in range(count))
            ],
            "commit": lambda count: [
                bytearray(groups.commit(team.group, team.generation, team.ids[0], "t", 4, next(offset)))
                for team in (teams[at % GROUPS] for at in range(count))
            ],
        }
        for kind in (NOTHING, *kinds):
            use = _put if kind == NOTHING else _send
            if kind == "fetch":
                inside.send(inside.connections[0], produce_frame(0, 1, 9))
            for at, frame in enumerate(made[kind](WARM_UP)):
                use(inside, at, frame)
            frames = made[kind](REQUESTS)
            gc.collect()
            os.getppid()
            for at, frame in enumerate(frames):
                use(inside, at, frame)
            os.getppid()
            assert kind == NOTHING or all(connection.idle for connection in inside.connections)


def measured(tree: Path, kinds: list[str], features: Sequence[str] = ()) -> dict[str, float]:
    """Instructions of one request, by kind."""
    with tempfile.TemporaryDirectory(prefix="ottla-callgrind-") as directory:
        out = Path(directory) / "out"
        command = ["valgrind", "--tool=callgrind", "--dump-before=getppid", f"--callgrind-out-file={out}"]
        command += [str(tree / ".venv/bin/python"), "-m", "bench.instructions", "--child", *kinds]
        command += ["--with", *features] if features else []
        # Each tree runs its own sources, whatever PYTHONPATH names.
        env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | {"PYTHONHASHSEED": "0"}
        done = subprocess.run(command, cwd=tree, env=env, capture_output=True, text=True, check=False)
        if done.returncode:
            raise SystemExit(done.stderr[-3000:])
        found: dict[str, float] = {}
        for number, kind in enumerate((NOTHING, *kinds)):
            part = Path(f"{out}.{2 * number + 2}")  # what came before each kind, and each kind
            total = re.search(r"^(?:totals|summary): (\d+)", part.read_text(), re.MULTILINE)
            assert total is not None, part
            found[kind] = int(total[1]) / REQUESTS
    return {kind: found[kind] - found[NOTHING] for kind in kinds}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kinds", nargs="*", help=", ".join(KINDS))
    parser.add_argument("--tree", action="append", type=Path, default=[])
    parser.add_argument("--with", nargs="+", choices=SETTINGS, default=[], dest="features", help="what the broker has")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    kinds = options.kinds or list(KINDS)
    if options.child:
        run(child(kinds, options.features))
        return
    trees = [tree.resolve() for tree in options.tree] or [Path.cwd()]
    results = [measured(tree, kinds, options.features) for tree in trees]
    for kind in kinds:
        print(f"{kind:12}", *(f"{result[kind]:10,.0f}" for result in results))


if __name__ == "__main__":
    main()
