"""The `ottla` command.

One module per noun (`topic`, `config`, `produce`, `consume`, `group`, `txn`, `cluster`, `reassign`, `pipeline`, `log`, `perf`),
plus what they share: `connection` (to any Kafka), `plain_request` (what its library does not send), `failure` (errors in words a
user understands), `output` (tables and JSON), `formats` and `positions` (records and places in a log as people type them).
`serve` starts a broker, and is reached without importing any of the others: the libraries that make a pleasant command line would
take a good part of the time in which a broker is up.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> None:
    """Entry point of the command `ottla` and of `python -m ottla`. Always ends in `SystemExit`."""
    _open_closed_streams()
    try:
        _run(list(sys.argv[1:] if arguments is None else arguments))
    except KeyboardInterrupt:
        # Before the command, or the broker, listens for it itself: modules are still being loaded.
        from ottla.cli.failure import EXIT_INTERRUPTED

        sys.exit(EXIT_INTERRUPTED)


def _run(words: list[str]) -> None:
    if words[:1] == ["serve"] and not {"--help", "-h"} & set(words):
        import gc

        # What a broker imports lives as long as its process: to look for garbage in it would be a tenth of the whole start.
        gc.disable()
        from ottla.cli.serve import main as serve

        sys.exit(serve(words[1:]))
    from ottla.cli.app import app

    app(words, prog_name="ottla")


def _open_closed_streams() -> None:
    """Somebody may start us with stdin, stdout or stderr closed (`2>&-`). The next file opened, a log perhaps, would get its
    number, and whatever writes there would write into it."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            # It takes the lowest free number: this one.
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115  (as long as the process)
