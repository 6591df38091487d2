"""The `ottla` command.

One module or package per command: `topic` (with `copying`), `config`, `produce`, `consume`, `find`, `group`, `txn`, `acl`,
`user`, `token`, `secure`, `cluster`, `reassign`, `dlq`, `delete_records`, `log_dirs`, `elect`, `verify_replicas`, `plan`,
`connections`, `console`, `doctor`, `pipeline`, `exporter`, `generate`, `log`, `perf`, `profile`, `serve`. They share
`connection` (any Kafka cluster, through librdkafka), `plain_request` (requests that librdkafka does not send), `failure` (exit
codes), `options`, `shared` (options that commands get by what they are), `parameters` (what Typer sees of them), `passwords`,
`output` (tables, and documents in `forms`), `views` (-o, --watch), `formats`, `reading`, `scope`, `positions`, `offsets`,
`last_records`, `units` and `selection` (--where, --grep).
`serve` imports none of the others: Typer and Rich would take a large part of a broker's start. `console` has a tree of its own.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> None:
    """Entry point of the command `ottla` and of `python -m ottla`. Always ends in `SystemExit`."""
    _open_closed_streams()
    try:
        _run(list(sys.argv[1:] if arguments is None else arguments))
    except KeyboardInterrupt:
        # Modules are still being imported: neither the command nor the broker handles the signal yet.
        from ottla.cli.failure import EXIT_INTERRUPTED

        sys.exit(EXIT_INTERRUPTED)


def _run(words: list[str]) -> None:
    if words[:1] == ["serve"] and not {"--help", "-h"} & set(words):
        import gc

        # A broker's imports live as long as its process. Collecting garbage among them takes a tenth of the start.
        gc.disable()
        from ottla.cli.serve import main as serve

        sys.exit(serve(words[1:]))
    if words[:2] == ["profile", "prompt"]:
        from ottla.cli.profile.prompt import main as prompt

        code = prompt(words[2:])
        if code is not None:
            sys.exit(code)
    if len(words) < 2 or {"--help", "-h"} & set(words):
        # Help ends as other tools do if its reader has ended; Typer and Rich would exit with 1. Commands handle it themselves.
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    if words[:1] == ["console"]:
        from ottla.cli.console.alone import app
    else:
        from ottla.cli.app import app

    app(words, prog_name="ottla")


def _open_closed_streams() -> None:
    """Open /dev/null for each standard stream that is closed (`2>&-`). Otherwise the next opened file would get its number."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            # open() takes the lowest free descriptor, which is the closed one.
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115  (as long as the process)
