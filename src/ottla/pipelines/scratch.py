"""The temporary directory of this process: the package for executors, the turns of a batch's tasks.

A process removes its directory at exit. It also holds a lock on the directory, so that the next pipeline of the same user can
remove the directories of killed processes.

Invariants
1. Only the holder of its lock removes a directory: never that of a living process, not even of a suspended one.
2. No other process needs a file in it. Tasks of a killed driver may fail because of it; their driver cannot commit anyway.
"""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
import threading
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

PREFIX = "ottla-pipeline-"


class _Held(NamedTuple):
    path: Path
    pid: int
    lock: int | None
    """The open, locked directory. systemd's cleaner also respects this lock."""


_held: _Held | None = None
_making = threading.Lock()


def directory() -> Path:
    """This process's directory. The first call makes it and removes those of killed processes."""
    global _held
    with _making:
        if _held is None or _held.pid != os.getpid() or not _held.path.is_dir():
            _sweep()
            _held = _made()
            atexit.register(_remove, _held)
        return _held.path


def _made() -> _Held:
    while True:
        path = Path(tempfile.mkdtemp(prefix=PREFIX))
        lock = _lock(path, wait=True)
        # Before the lock, another process may have removed it.
        if path.is_dir():
            return _Held(path, os.getpid(), lock)
        if lock is not None:
            os.close(lock)


def _lock(path: Path, *, wait: bool) -> int | None:
    """The directory, open and locked. None if another process holds it, or if the system has no such locks."""
    try:
        import fcntl
    except ImportError:  # no locks on this system: nothing is removed
        return None
    with suppress(OSError):
        file = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        try:
            fcntl.flock(file, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BaseException:
            os.close(file)
            raise
        return file
    return None


def _sweep() -> None:
    for path in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
        # Other processes remove them at the same time, and other users have theirs here.
        with suppress(OSError):
            lock = _lock(path, wait=False) if path.lstat().st_uid == os.getuid() else None
            if lock is not None:
                shutil.rmtree(path, ignore_errors=True)
                os.close(lock)


def _remove(held: _Held) -> None:
    if held.pid == os.getpid():  # a forked child inherits this exit handler
        shutil.rmtree(held.path, ignore_errors=True)
