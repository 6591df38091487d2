"""Puts bytecode into the archive that Spark's Python workers import PySpark from: `python tests/pipelines/bytecode.py`

PySpark comes with it as sources only, so that every worker compiles them anew: a second of a core each time, and Spark waits ten
seconds for a worker and has no setting for that. With bytecode it is half of one. Done once for a .venv; harmless if repeated.
"""

from __future__ import annotations

import importlib.util
import os
import zipfile
from importlib._bootstrap_external import _code_to_hash_pyc  # type: ignore[attr-defined]
from pathlib import Path


def compiled(archive: Path, name: str, source: bytes) -> bytes:
    code = compile(source, str(archive / name), "exec", dont_inherit=True)
    # Not compared with the source by the time of its last change: an archive keeps that only roughly.
    found: bytes = _code_to_hash_pyc(code, importlib.util.source_hash(source), False)
    return found


def put_into(archive: Path) -> None:
    new = archive.with_name(f"{archive.name}.{os.getpid()}")
    with zipfile.ZipFile(archive) as old, zipfile.ZipFile(new, "w", zipfile.ZIP_DEFLATED) as made:
        if any(name.endswith(".pyc") for name in old.namelist()):
            new.unlink()
            return
        for entry in old.infolist():
            data = old.read(entry)
            made.writestr(entry, data)
            if entry.filename.endswith(".py") and "/tests/" not in entry.filename:
                made.writestr(f"{entry.filename}c", compiled(archive, entry.filename, data))
    new.replace(archive)


def main() -> None:
    found = importlib.util.find_spec("pyspark")
    if found is not None and found.origin is not None:
        for archive in Path(found.origin).parent.glob("python/lib/*.zip"):
            put_into(archive)


if __name__ == "__main__":
    main()
