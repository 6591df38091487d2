"""Runs seeds: one, with all of its events, or many.

A seed runs in each of the worlds; its trace hash is over all of them. The same seed gives the same hash on any machine and with
any `PYTHONHASHSEED`: `--check` runs each seed twice and compares.
"""

from __future__ import annotations

import argparse
import gc
import hashlib
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from itertools import count, islice
from multiprocessing import get_context
from typing import Final, Protocol

from ottla.sim.bugs import BUGS, IS_COMPILED, planted
from ottla.sim.kernel.loop import TooManySteps
from ottla.sim.kernel.trace import Trace
from ottla.sim.violation import Violation
from ottla.sim.worlds.broker_world import BrokerWorld
from ottla.sim.worlds.cluster_world import ClusterWorld
from ottla.sim.worlds.late_world import LateWorld
from ottla.sim.worlds.log_world import LogWorld
from ottla.sim.worlds.registry_world import RegistryWorld
from ottla.sim.worlds.story_world import StoryWorld
from ottla.sim.worlds.transaction_world import TransactionWorld

SEEDS_DEFAULT: Final = "1-200"
CLUSTER_EVERY: Final = 4
"""A cluster costs as much as the other worlds together: of many seeds every fourth runs one."""
SEEDS_BETWEEN_COLLECTIONS: Final = 10
SEEDS_AT_ONCE: Final = 20


class _World(Protocol):
    trace: Trace

    def __init__(self, seed: int, *, echo: Callable[[str], None] | None = None) -> None: ...

    def run(self) -> None: ...


WORLDS: Final[dict[str, type[_World]]] = {
    "log": LogWorld,
    "broker": BrokerWorld,
    "transactions": TransactionWorld,
    "cluster": ClusterWorld,
    "late": LateWorld,
    "stories": StoryWorld,
    "registries": RegistryWorld,
}


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a seed."""

    seed: int
    digest: str
    events: int
    world: str = ""
    rule: str = ""
    """The rule that was broken; empty: none."""
    detail: str = ""
    last_events: tuple[str, ...] = ()

    @property
    def failed(self) -> bool:
        return bool(self.rule)


def worlds_of(seed: int) -> tuple[str, ...]:
    """The worlds in which a seed runs as one of many."""
    return tuple(name for name in WORLDS if name not in ("cluster", "late", "stories", "registries") or seed % CLUSTER_EVERY == 0)


def run_seed(seed: int, worlds: Sequence[str] = (), *, echo: Callable[[str], None] | None = None) -> Outcome:
    """Run one seed, to its end or to the first broken rule."""
    digest = hashlib.blake2b(digest_size=8)
    events = 0
    for name in worlds or worlds_of(seed):
        world = WORLDS[name](seed, echo=echo)
        rule = detail = ""
        try:
            world.run()
        except Violation as violation:
            rule, detail = violation.rule, violation.detail
        except TooManySteps as error:
            rule, detail = "rest", str(error)
        except Exception as error:
            frames = traceback.extract_tb(error.__traceback__)
            where = next((f"{frame.filename.rpartition('ottla/')[2]}:{frame.lineno}" for frame in reversed(frames)), "?")
            rule, detail = "exception", f"{type(error).__name__}: {error} (at {where})"
        digest.update(world.trace.digest.encode())
        events += world.trace.count
        if rule:
            return Outcome(seed, digest.hexdigest(), events, name, rule, detail, tuple(world.trace.last))
    return Outcome(seed, digest.hexdigest(), events)


def run_seeds(seeds: Iterable[int], worlds: Sequence[str] = (), *, jobs: int = 1) -> Iterator[Outcome]:
    """Run seeds; outcomes come in the order they are ready. Several jobs run in processes of their own."""
    if jobs <= 1:
        for number, seed in enumerate(seeds):
            if number % SEEDS_BETWEEN_COLLECTIONS == 0:
                gc.collect()
            yield run_seed(seed, worlds)
        return
    wanted = iter(seeds)
    with get_context("spawn").Pool(jobs, initializer=gc.disable) as pool:
        # In portions: the pool reads ahead without bound, and the seeds may have no end.
        while portion := [(seed, tuple(worlds)) for seed in islice(wanted, SEEDS_AT_ONCE * jobs)]:
            yield from pool.imap_unordered(_run_one, portion, chunksize=5)


def _run_one(given: tuple[int, tuple[str, ...]]) -> Outcome:
    if given[0] % SEEDS_BETWEEN_COLLECTIONS == 0:
        gc.collect()
    return run_seed(*given)


def report(outcome: Outcome, bug: str = "") -> None:
    for line in outcome.last_events:
        print(f"  {line}")
    print(f"seed {outcome.seed}, {outcome.world} world: {outcome.rule}: {outcome.detail}")
    planted_option = f" --bug {bug}" if bug else ""
    print(f"replay: python -m ottla.sim --seed {outcome.seed} --world {outcome.world}{planted_option}")


def _parse_range(text: str) -> range:
    first, _, last = text.partition("-")
    try:
        return range(int(first), int(last or first) + 1)
    except ValueError:
        raise argparse.ArgumentTypeError(f"seeds are given as A-B, not {text!r}") from None


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m ottla.sim", description="The broker in a seeded, virtual world.")
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--seed", type=int, help="replay one seed, with all of its events")
    which.add_argument("--seeds", type=_parse_range, metavar="A-B", help=f"run a range (default {SEEDS_DEFAULT})")
    which.add_argument("--minutes", type=float, help="run seeds from 1 on for so long")
    parser.add_argument("--jobs", type=int, default=1, help="processes (default 1)")
    parser.add_argument("--world", choices=WORLDS, help="only one of the worlds")
    parser.add_argument(
        "--bug", choices=sorted(BUGS), metavar="BUG", help="plant a bug, to see it caught: docs/simulator.md has them"
    )
    parser.add_argument(
        "--bugs", metavar="WORLD", nargs="?", const="", help="plant every bug in turn and say who caught it (a Markdown table)"
    )
    parser.add_argument("--check", action="store_true", help="run each seed twice: the same seed must give the same trace")
    parser.add_argument("--quiet", action="store_true", help="with --seed: the outcome only")
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    if IS_COMPILED and (options.bug or options.bugs is not None):
        raise SystemExit("bugs cannot be planted in what is compiled; `make bugs` runs the sources (PYTHONPATH=build/pure)")
    worlds = (options.world,) if options.world else ()
    gc.disable()
    if options.bugs is not None:
        return _all_bugs(options.bugs)
    with planted(options.bug) if options.bug else nullcontext():
        if options.seed is not None:
            return _one(options.seed, worlds, quiet=options.quiet)
        if options.minutes is not None:
            return _many(_for_minutes(options.minutes), worlds, options.jobs, options.check, options.bug or "")
        return _many(options.seeds or _parse_range(SEEDS_DEFAULT), worlds, options.jobs, options.check, options.bug or "")


def _one(seed: int, worlds: Sequence[str], *, quiet: bool) -> int:
    outcome = run_seed(seed, worlds, echo=None if quiet else lambda line: print(line))
    if outcome.failed:
        print(f"seed {seed}, {outcome.world} world: {outcome.rule}: {outcome.detail}")
    print(f"seed {seed}: {outcome.events} events, trace {outcome.digest}")
    return int(outcome.failed)


def _for_minutes(minutes: float) -> Iterator[int]:
    end = time.monotonic() + minutes * 60
    for seed in count(1):
        if time.monotonic() >= end:
            return
        yield seed


def _many(seeds: Iterable[int], worlds: Sequence[str], jobs: int, check: bool, bug: str) -> int:
    started = time.monotonic()
    total = failed = events = 0
    digests = 0
    for outcome in run_seeds(seeds, worlds, jobs=1 if bug else jobs):
        total += 1
        events += outcome.events
        digests ^= int(outcome.digest, 16)
        if outcome.failed:
            failed += 1
            report(outcome, bug)
        elif check:
            again = run_seed(outcome.seed, worlds)
            if again.digest != outcome.digest:
                failed += 1
                print(f"seed {outcome.seed} is not deterministic: trace {outcome.digest}, then {again.digest}")
        if total % 100 == 0:
            print(f"{total} seeds, {failed} failed, {time.monotonic() - started:.0f} s", flush=True)
    print(f"{total} seeds, {events} events, {failed} failed, {time.monotonic() - started:.1f} s, traces {digests:016x}")
    return int(failed > 0)


def find_bug(name: str, seeds: Iterable[int]) -> Outcome | None:
    """The first outcome that catches a planted bug, or None."""
    with planted(name):
        for seed in seeds:
            outcome = run_seed(seed, (BUGS[name].world,))
            if outcome.failed:
                return outcome
    return None


def _all_bugs(world: str) -> int:
    missed = 0
    print("| planted bug | world | caught by | seeds needed |")
    print("|---|---|---|---|")
    for name, bug in BUGS.items():
        if world not in ("", bug.world):
            continue
        gc.collect()
        outcome = find_bug(name, bug.seeds)
        if outcome is None:
            missed += 1
        caught = "NOT CAUGHT" if outcome is None else outcome.rule
        print(
            f"| {bug.summary} (`{name}`) | {bug.world} | {caught} | {bug.seeds[-1] if outcome is None else outcome.seed} |",
            flush=True,
        )
    return int(missed > 0)
