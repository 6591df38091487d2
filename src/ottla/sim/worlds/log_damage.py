"""Damage to the files of a data directory while no process runs."""

from __future__ import annotations

import random
from collections.abc import Sequence

from ottla.sim.kernel.disk import SimDisk
from ottla.sim.kernel.inode import Inode
from ottla.sim.kernel.trace import Trace
from ottla.sim.models.log_files import checkpoint_entries, entries_of, scan, segments
from ottla.sim.worlds.kept_log import ROOT, KeptLog


class LogDamage:
    def __init__(
        self, rng: random.Random, snapshots_rng: random.Random, disk: SimDisk, kept: Sequence[KeptLog], trace: Trace
    ) -> None:
        self._rng = rng
        self._snapshots_rng = snapshots_rng
        self._disk = disk
        self._kept = kept
        self._trace = trace
        self.damaged: set[str] = set()
        """Index files that are rebuilt when they are needed, and not before."""

    def damage(self, how: str) -> None:
        """While no process runs: damage an index, flip a bit behind the recovery point, damage a snapshot, or nothing."""
        rng = self._rng
        if rng.random() < 0.25:
            paths = [path for path in self._disk.paths(ROOT) if path.endswith((".index", ".timeindex"))]
            if paths:
                path = rng.choice(paths)
                node = self._disk.node(path)
                assert isinstance(node, Inode)
                kind = rng.choice(("missing", "garbage", "empty"))
                if kind == "missing":
                    parent, name = self._disk.parent(path)
                    self._disk.journal.drop(parent, name)
                    self._disk.flush_all()
                else:
                    entry = 8 if path.endswith(".index") else 12
                    # A few entries, descending: ascending ones could be right by chance.
                    node.data[:] = b"" if kind == "empty" else bytes([200 - i for i in range(entry * rng.randint(3, 6))])
                    if kind == "garbage" and rng.random() < 0.5:
                        node.data += b"xyz"
                self.damaged.add(path)
                self._trace.add(f"damage {kind} {path}")
        if how == "kill" and rng.random() < 0.2:
            self._flip_bit()
        if self._snapshots_rng.random() < 0.2:
            self._damage_snapshot()

    def _damage_snapshot(self) -> None:
        """Producer state must be found in an older snapshot and in the records (L05)."""
        rng = self._snapshots_rng
        paths = [path for path in self._disk.paths(ROOT) if path.endswith(".snapshot")]
        if not paths:
            return
        path = rng.choice(paths)
        node = self._disk.node(path)
        assert isinstance(node, Inode)
        kind = rng.choice(("missing", "cut", "flipped"))
        if kind == "missing":
            self._disk.journal.drop(*self._disk.parent(path))
            self._disk.flush_all()
        elif kind == "cut":
            del node.data[rng.randrange(len(node.data) + 1) :]
        elif node.data:
            node.data[rng.randrange(len(node.data))] ^= 1 << rng.randrange(8)
        self._trace.add(f"damage {kind} {path}")

    def _flip_bit(self) -> None:
        """A flipped bit behind the recovery point (L02): the log must end before that batch, whatever follows."""
        points = checkpoint_entries(self._disk, f"{ROOT}/recovery-point-offset-checkpoint")
        kept = self._rng.choice(self._kept)
        if kept.attempt is not None or kept.log is None or kept.truncating:
            return
        recovery_point = points.get((kept.partition.topic, kept.partition.partition), 0)
        bases = [base for base in segments(entries_of(self._disk, kept.directory)) if base >= recovery_point]
        if not bases:
            return
        base = self._rng.choice(bases)
        path = f"{kept.directory}/{base:020d}.log"
        batches, _ = scan(self._disk.contents(path), base)
        if not batches or batches[0].base_offset < kept.model.log_start:
            return
        hit = self._rng.choice(batches)
        self._disk.flip_bit(path, hit.position + self._rng.randrange(17, len(hit.data)), self._rng.randrange(8))
        self._trace.add(f"flip a bit in {kept.partition} at {hit.base_offset}")
        kept.model.cut(hit.base_offset)
