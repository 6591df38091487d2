"""`ports.Descriptors` of this process: the limit of open files (`ulimit -n`), and the part of it that connections leave to files.

The limit is read each time: `prlimit --pid` changes it while the broker runs.
"""

from __future__ import annotations

import os
import resource

KEPT_MIN = 32
KEPT_MAX = 1024


class ProcessDescriptors:
    def limit(self) -> int:
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        return 1 << 31 if soft == resource.RLIM_INFINITY else soft

    def kept(self) -> int:
        """A quarter of the limit, between `KEPT_MIN` and `KEPT_MAX`."""
        return max(KEPT_MIN, min(self.limit() // 4, KEPT_MAX))

    def full(self) -> bool:
        # The system gives the lowest free number: if that is one of the last, all below are taken.
        try:
            lowest_free = os.open("/", os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return True
        os.close(lowest_free)
        return lowest_free >= self.limit() - self.kept()

    def files_left(self) -> int:
        return self.limit() - self.kept() // 2 - len(os.listdir("/dev/fd"))
