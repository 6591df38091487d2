"""A file for each cluster and kind of names, in `~/.cache/ottla` (XDG_CACHE_HOME).

It is a cache: errors of files are no errors.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
import time
from pathlib import Path

FRESH_S = 30.0


class NamesCache:
    def __init__(self, cluster: str, kind: str) -> None:
        """`cluster` says all that chooses the cluster and who asks it: what one user may see, another may not."""
        base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        self._path = base / "ottla" / f"{kind}-{hashlib.sha256(cluster.encode()).hexdigest()[:32]}.json"

    def read(self) -> list[str] | None:
        """The names, if they are fresh."""
        try:
            if not 0 <= time.time() - self._path.stat().st_mtime < FRESH_S:
                return None
            names = json.loads(self._path.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None
        return [name for name in names if isinstance(name, str)] if isinstance(names, list) else None

    def write(self, names: list[str]) -> None:
        try:
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            # A new file is readable by its owner only; another shell never sees half of it.
            descriptor, name = tempfile.mkstemp(dir=self._path.parent)
            with open(descriptor, "w", encoding="utf-8") as file:
                json.dump(names, file)
            os.replace(name, self._path)
        except OSError:
            pass
