"""Passwords for commands: from a file, from stdin or from a prompt. Everybody on the machine can see arguments."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from ottla.cli.failure import EXIT_USAGE, Failure
from ottla.cli.options import read_text

PasswordFile = Annotated[
    Path | None,
    typer.Option("--password-file", metavar="FILE", help="Read the password from the first line of a file; - is stdin."),
]


def read_password(file: Path | None, whose: str) -> str:
    if file is not None:
        text = sys.stdin.readline() if str(file) == "-" else read_text(file).partition("\n")[0]
        password = text.rstrip("\r\n")
    elif sys.stdin.isatty():
        password = typer.prompt(f"Password of {whose}", hide_input=True, confirmation_prompt=True, err=True)
    else:
        raise Failure(
            "there is no terminal to ask for the password", "pass --password-file FILE, or - for stdin", exit_code=EXIT_USAGE
        )
    if not password:
        raise Failure("the password is empty", exit_code=EXIT_USAGE)
    return str(password)
