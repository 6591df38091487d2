"""Pages of the site that are made while it is built: the reference of the command line, and the documents at the root.

mkdocs calls `on_files` (`hooks` in mkdocs.yml). `.venv/bin/python tools/site_pages.py` prints the reference.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
DOCUMENTS = {"architecture.md": "ARCHITECTURE.md", "contributing.md": "CONTRIBUTING.md", "changelog.md": "CHANGELOG.md"}


def on_files(files: Any, config: Any) -> Any:
    from mkdocs.structure.files import File

    for page, document in DOCUMENTS.items():
        files.append(File.generated(config, page, content=at_site((ROOT / document).read_text())))
    files.append(File.generated(config, "adr/index.md", content=decisions()))
    files.append(File.generated(config, "cli-reference.md", content=cli_reference()))
    return files


def at_site(text: str) -> str:
    """The text of a document at the root, with links as they are in `docs`."""
    for page, document in DOCUMENTS.items():
        text = text.replace(f"]({document})", f"]({page})")
    return text.replace("](docs/adr)", "](adr/index.md)").replace("](docs/", "](").replace("](README.md)", "](index.md)")


def decisions() -> str:
    lines = ["# Decisions", "", "Why Ottla is as it is: one page per decision.", ""]
    for path in sorted((ROOT / "docs" / "adr").glob("0*.md")):
        title = path.read_text().splitlines()[0].removeprefix("# ")
        lines.append(f"- [{title}]({path.name})")
    return "\n".join([*lines, ""])


def cli_reference() -> str:
    """Every command with its arguments and options, as `--help` shows them."""
    os.environ |= {"TYPER_USE_RICH": "0", "COLUMNS": "110"}
    from typer.main import get_command

    from ottla.cli.app import app

    head = ["# Commands", "", "Every command of `ottla`, as `--help` shows it. [cli.md](cli.md) shows them by example.", ""]
    return "\n".join([*head, *_commands("ottla", get_command(app))])


def _commands(name: str, command: Any) -> Iterator[str]:
    for word, each in sorted(getattr(command, "commands", {}).items()):
        if not each.hidden:
            yield from _commands(f"{name} {word}", each)
    if not hasattr(command, "commands"):
        shown = command.get_help(command.make_context(name, [], resilient_parsing=True))
        yield from (f"## {name}", "", "```text", shown.strip(), "```", "")


if __name__ == "__main__":
    print(cli_reference())
