"""`python -m ottla.console FD`: a console with the settings that are read from this file descriptor.

`ottla console` and `ottla serve --console` start it so: passwords are neither in arguments nor in the environment. After the line
of settings the descriptor belongs to the starter: with `--with-owner` the console ends when it closes.
"""

from __future__ import annotations

import gc
import os
import sys

MISSING = "the console needs packages that are not installed: pip install 'ottla[console]'"


def main(words: list[str]) -> int:
    # What is imported lives as long as the process. Looking for garbage among it takes a tenth of the start.
    gc.disable()
    from ottla.cli.console.settings import ConsoleSettings
    from ottla.cli.failure import Failure, report

    descriptor = int(words[0])
    settings = ConsoleSettings.from_json(_line(descriptor))
    owned = "--with-owner" in words
    if not owned:
        os.close(descriptor)
    try:
        from ottla.console.server import serve
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("starlette", "uvicorn", "anyio", "h11"):
            raise
        print(f"error: {MISSING}", file=sys.stderr)
        return 1
    gc.freeze()
    gc.enable()
    try:
        serve(settings, descriptor if owned else None)
    except Failure as failure:
        report(failure, as_json=False)
        return failure.exit_code
    return 0


def _line(descriptor: int) -> str:
    """Up to the first line end, and no byte more."""
    found = bytearray()
    while chunk := os.read(descriptor, 1):
        if chunk == b"\n":
            break
        found += chunk
    return found.decode()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
