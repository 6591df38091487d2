"""Files that nobody needs after this process: the package for executors, the turns of a batch's tasks.

Owns: one directory of this process, under the system's one for temporary files. A process that ends in order removes its own. One
that is killed cannot, so a directory is locked for as long as its process lives, and the next pipeline of the same user removes
those that nobody holds.

Invariants
1. A directory is removed only by whoever holds its lock: never that of a process that lives, also not of one that is stopped.
2. Nothing in it is needed by anybody else: tasks that a killed driver left behind may find it gone and fail, as they would anyway
   because their driver commits no more.
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
    """Open for as long as the process lives, and locked. (systemd's cleaner leaves alone what is locked like that.)"""


_held: _Held | None = None
_making = threading.Lock()


def directory() -> Path:
    """This process's own, made at the first call; what killed processes left is removed then."""
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
        # Between the two somebody may have taken it for one that was left behind.
        if path.is_dir():
            return _Held(path, os.getpid(), lock)
        if lock is not None:
            os.close(lock)


def _lock(path: Path, *, wait: bool) -> int | None:
    """The directory, open and locked; None where another holds it, or where there are no such locks."""
    try:
        import fcntl
    except ImportError:  # not every system has it: there nothing is swept
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
        # Others sweep at the same time, and other users have theirs here.
        with suppress(OSError):
            lock = _lock(path, wait=False) if path.lstat().st_uid == os.getuid() else None
            if lock is not None:
                shutil.rmtree(path, ignore_errors=True)
                os.close(lock)


def _remove(held: _Held) -> None:
    if held.pid == os.getpid():  # a fork of it has the same list of things to do at exit
        shutil.rmtree(held.path, ignore_errors=True)
