"""Options of commands that print a list or a description: -o chooses the form, --watch prints again and again.

The command itself sees neither: it prints a table, or with `json_output` its document, which `output` prints in the chosen form.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import io
import sys
import time
from collections.abc import Callable, Mapping
from typing import Annotated, Any

import typer

from ottla.cli.failure import C, Failure
from ottla.cli.forms import Form
from ottla.cli.output import printing_in
from ottla.cli.parameters import declare, own_parameters

VIEWS = frozenset({"list", "describe", "show", "status", "members", "find-hanging", "verify-replicas", "connections"})
"""Names of commands that print a list or a description."""

_INTERVAL_S = 2.0
_SHORT = "-o"

Output = Annotated[
    Form | None, typer.Option("--output", _SHORT, metavar="|".join(Form), help="The form of the output. (default: table)")
]
LongOutput = Annotated[Form | None, typer.Option("--output", metavar="|".join(Form), help="The form of the output.")]
Watch = Annotated[bool, typer.Option("--watch", "-w", help="Print again and again, until Ctrl-C.")]
Interval = Annotated[float, typer.Option("--interval", metavar="SECONDS", min=0.1, help="How often --watch prints.")]


def with_view_options(command: C) -> C:
    """The command with -o and --watch."""
    own = own_parameters(command)
    if "json_output" not in own:
        return command
    added: dict[str, tuple[Any, Any]] = {
        "output": (LongOutput if _has_short(own) else Output, None),
        "watch": (Watch, False),
    }
    if "interval" not in own:  # `connections` has one: how long it measures
        added["interval"] = (Interval, _INTERVAL_S)

    @functools.wraps(command)
    def run(**options: Any) -> None:
        form, watch = options.pop("output"), options.pop("watch")
        interval_s = options.pop("interval") if "interval" in added else _INTERVAL_S
        if form is not None:
            options["json_output"] = form is not Form.TABLE
        with printing_in(form or Form.JSON):
            if watch:
                _again_and_again(lambda: command(**options), interval_s)
            else:
                command(**options)

    declare(run, own.values(), added)
    return run  # type: ignore[return-value]


def _has_short(parameters: Mapping[str, inspect.Parameter]) -> bool:
    """Whether the command has an option -o of its own."""
    return any(
        _SHORT in (getattr(option, "param_decls", None) or ())
        for parameter in parameters.values()
        for option in getattr(parameter.annotation, "__metadata__", ())
    )


def _again_and_again(command: Callable[[], Any], interval_s: float) -> None:
    if not sys.stdout.isatty():
        while True:
            command()
            sys.stdout.flush()
            time.sleep(interval_s)
    from rich.live import Live
    from rich.text import Text

    shown = _captured(command)  # a failure of the first time is one of the command
    with Live(Text(shown, no_wrap=True, overflow="crop"), screen=True, auto_refresh=False) as live:
        while True:
            time.sleep(interval_s)
            try:
                shown, problem = _captured(command), ""
            except Failure as failure:
                problem = f"error: {failure.message}\n\n"
            live.update(Text(problem + shown, no_wrap=True, overflow="crop"), refresh=True)


def _captured(command: Callable[[], Any]) -> str:
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
        command()
    return out.getvalue()
