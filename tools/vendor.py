"""Fetch the JavaScript that the console and its tests carry along: `python tools/vendor.py FOLDER`.

`FOLDER/VENDOR.json` lists package, version and file. Each file is taken from the package that npm serves, its imports are made
relative ("edits"), and the hashes of both forms are written back. `tests/unit/console/test_static.py` compares them.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path


def fetch(package: str, version: str, scratch: Path) -> Path:
    """The folder of an unpacked package."""
    folder = scratch / f"{package.replace('/', '-')}-{version}"
    if not folder.exists():
        packed = subprocess.run(
            ["npm", "pack", "--silent", f"{package}@{version}"], cwd=scratch, check=True, capture_output=True, text=True
        )
        with tarfile.open(scratch / packed.stdout.split()[-1]) as archive:
            archive.extractall(folder, filter="data")
    return folder / "package"


def vendor(folder: Path) -> None:
    index = folder / "VENDOR.json"
    entries = json.loads(index.read_text())
    with tempfile.TemporaryDirectory() as scratch:
        for entry in entries:
            package = fetch(entry["package"], entry["version"], Path(scratch))
            published = (package / entry["from"]).read_bytes()
            text = published.decode()
            for old, new in entry.get("edits", []):
                text = text.replace(old, new)
            text += entry.get("append", "")
            (folder / entry["file"]).write_text(text)
            entry["published_sha256"] = hashlib.sha256(published).hexdigest()
            entry["sha256"] = hashlib.sha256(text.encode()).hexdigest()
            licence = f"LICENSE.{entry['package'].removeprefix('@').replace('/', '-')}"
            (folder / licence).write_bytes((package / "LICENSE").read_bytes())
    index.write_text(json.dumps(entries, indent=2) + "\n")


if __name__ == "__main__":
    vendor(Path(sys.argv[1]))
