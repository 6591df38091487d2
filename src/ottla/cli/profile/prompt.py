"""`ottla profile prompt`: the name of the profile for a shell's prompt. Runs before each prompt, so it imports no Typer."""

from __future__ import annotations

import sys

from ottla.cli.failure import Failure
from ottla.cli.profile.chosen import choose
from ottla.cli.profile.definition import COLOURS

SHELLS = {"bash": ("\001", "\002"), "zsh": ("%{", "%}"), "fish": ("", "")}
"""What encloses characters without width."""


def prompt_text(shell: str | None = None) -> str:
    """The profile's name, with `*` if it is protected, in its colour for a shell. Empty if there is none."""
    try:
        profile = choose(None, other_cluster=False)
    except Failure:
        return ""
    if profile is None:
        return ""
    word = profile.name + ("*" if profile.protected else "")
    if shell is None or profile.colour is None:
        return word
    before, after = SHELLS[shell]
    return f"{before}\033[{COLOURS[profile.colour]}m{after}{word}{before}\033[0m{after}"


def main(words: list[str]) -> int | None:
    """Print it. None if the words are not only `--shell NAME`, or nothing: then Typer parses them."""
    shell = words[1] if len(words) == 2 and words[0] == "--shell" else None
    if words and shell not in SHELLS:
        return None
    text = prompt_text(shell)
    sys.stdout.write(f"{text}\n" if text else "")
    return 0
