"""A network namespace per broker, joined by a router that can drop packets from one to another.

The namespaces have no names: open files and processes keep them. They vanish with the test and its processes, however it ends.
No interface of the machine leads into them.
"""

from __future__ import annotations

import ctypes
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

CLONE_NEWNET = 0x40000000
libc = ctypes.CDLL(None, use_errno=True)


def _enter(namespace: int) -> None:
    """Move this thread into a namespace. Threads, processes and sockets that it makes belong to it."""
    if libc.setns(namespace, CLONE_NEWNET):
        raise OSError(ctypes.get_errno(), "setns: root is needed to enter a network namespace")


def _current() -> int:
    return os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)


def _made() -> int:
    """Make a namespace. The thread stays where it is."""
    home = _current()
    try:
        if libc.unshare(CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), "unshare: root is needed to make a network namespace")
        try:
            subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
            return _current()
        finally:
            _enter(home)
    finally:
        os.close(home)


class Network:
    """`Network("zookeeper", 1, 2, 3, "client")`: hosts by name, each with an address."""

    def __init__(self, *names: str | int) -> None:
        self._spaces: dict[str | int, int] = {}
        self._addresses = {name: f"10.77.{place}.2" for place, name in enumerate(names, 1)}
        self._cuts: set[tuple[str | int, str | int]] = set()
        self._router = -1
        try:
            self._router = _made()
            with self._in(self._router), open("/proc/sys/net/ipv4/ip_forward", "w") as forward:
                forward.write("1")
            for place, name in enumerate(names, 1):
                self._spaces[name] = _made()
                self._join(place, name)
        except BaseException:
            self.close()
            raise

    def _join(self, place: int, name: str | int) -> None:
        host = f"/proc/{os.getpid()}/fd/{self._spaces[name]}"
        with self._in(self._router):
            self._ip(f"link add host{place} type veth peer name out netns {host}")
            self._ip(f"addr add 10.77.{place}.1/24 dev host{place}")
            self._ip(f"link set host{place} up")
        with self.inside(name):
            self._ip(f"addr add {self._addresses[name]}/24 dev out")
            self._ip("link set out up")
            self._ip(f"route add default via 10.77.{place}.1")

    @staticmethod
    def _ip(words: str) -> None:
        done = subprocess.run(["ip", *words.split()], capture_output=True, text=True)
        assert done.returncode == 0, f"ip {words}: {done.stderr}"

    @contextmanager
    def _in(self, namespace: int) -> Iterator[None]:
        home = _current()
        try:
            _enter(namespace)
            yield
        finally:
            _enter(home)
            os.close(home)

    @contextmanager
    def inside(self, name: str | int) -> Iterator[None]:
        """Inside the block, this thread starts processes on that host."""
        with self._in(self._spaces[name]):
            yield

    def address(self, name: str | int) -> str:
        return self._addresses[name]

    def cut(self, sources: str | int | list[str | int], targets: str | int | list[str | int], *, both: bool = True) -> None:
        """Drop all packets from those hosts to these; with `both`, in both directions."""
        for source in sources if isinstance(sources, list) else [sources]:
            for target in targets if isinstance(targets, list) else [targets]:
                self._drop(source, target)
                if both:
                    self._drop(target, source)

    def _drop(self, source: str | int, target: str | int) -> None:
        if source != target and (source, target) not in self._cuts:
            self._cuts.add((source, target))
            self._rule("add", source, target)

    def _rule(self, verb: str, source: str | int, target: str | int) -> None:
        with self._in(self._router):
            self._ip(f"rule {verb} from {self._addresses[source]} to {self._addresses[target]} blackhole")

    def isolate(self, name: str | int) -> None:
        """Cut a host from all others."""
        self.cut(name, list(self._addresses))

    def heal(self) -> None:
        while self._cuts:
            self._rule("del", *self._cuts.pop())

    def close(self) -> None:
        for namespace in [*self._spaces.values(), self._router]:
            if namespace >= 0:
                os.close(namespace)
        self._spaces.clear()
        self._router = -1
