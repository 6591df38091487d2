"""`ottla profile`: list, add, show, use, remove, edit, prompt."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from ottla.cli.completion.names import profiles
from ottla.cli.failure import EXIT_USAGE, Failure
from ottla.cli.options import Commands, Json, Yes, confirm, parse_pairs
from ottla.cli.output import note, print_document, print_table
from ottla.cli.profile.chosen import VARIABLE, choose
from ottla.cli.profile.definition import COLOURS, check_name, parse_profile
from ottla.cli.profile.file import EXAMPLE, ProfileFile, added, config_path, parse_file, read_file, removed, using, write_file
from ottla.cli.profile.prompt import SHELLS, prompt_text

app = Commands(
    help="Profiles: named clusters with their client properties, for --profile and OTTLA_PROFILE.", no_args_is_help=True
)


Name = Annotated[str, typer.Argument(metavar="PROFILE", show_default=False, autocompletion=profiles)]


@app.add("list")
def list_(json_output: Json = False) -> None:
    """List profiles. The one in use has a star."""
    file = read_file()
    used = os.environ.get(VARIABLE) or file.current
    documents = [{**profile.document(), "in_use": name == used} for name, profile in file.profiles.items()]
    if json_output:
        print_document(documents)
    elif documents:
        print_table(
            ["", "PROFILE", "BOOTSTRAP-SERVERS", "SECURITY", "PROTECTED"],
            [
                (
                    "*" if document["in_use"] else "",
                    document["profile"],
                    document["bootstrap_servers"],
                    document["properties"].get("security.protocol", "PLAINTEXT"),
                    "yes" if document["protected"] else "no",
                )
                for document in documents
            ],
        )
    else:
        note(f"no profiles yet in {file.path}; add one with `ottla profile add NAME --servers HOST:PORT`")


@app.add("add")
def add(
    name: Name,
    servers: Annotated[str, typer.Option("--servers", "-b", metavar="HOST:PORT[,…]", help="Addresses of one or more brokers.")],
    properties_file: Annotated[
        Path | None,
        typer.Option("--properties", metavar="FILE", help="Take the client properties of this file, as of --command-config."),
    ] = None,
    properties: Annotated[
        list[str] | None, typer.Option("--property", "-X", metavar="KEY=VALUE", help="One client property (repeatable).")
    ] = None,
    password_command: Annotated[
        str | None, typer.Option("--password-command", metavar="COMMAND", help="A command whose first line is sasl.password.")
    ] = None,
    protected: Annotated[bool, typer.Option("--protected", help="Ask before each change.")] = False,
    colour: Annotated[
        str | None, typer.Option("--colour", "--color", metavar="COLOUR", help=f"In prompts: {', '.join(COLOURS)}.")
    ] = None,
    use: Annotated[bool, typer.Option("--use", help="Make it the current profile.")] = False,
) -> None:
    """Add a profile. In properties, ${NAME} is an environment variable.

    All users of this machine see the arguments of a command: pass secrets by --properties, ${NAME} or --password-command.
    """
    from ottla.cli.connection import read_client_properties, split_servers

    file = read_file()
    if check_name(name) in file.profiles:
        raise Failure(f"profile {name} exists already", f"change it with `ottla profile edit`, or remove it: {file.path}")
    given = {} if properties_file is None else read_client_properties(properties_file)
    given.pop("bootstrap.servers", None)
    given |= parse_pairs(properties, "--property")
    split_servers(servers)
    section = {"bootstrap_servers": servers, "properties": given, "protected": protected}
    section |= {"password_command": password_command} if password_command else {}
    section |= {"colour": colour} if colour else {}
    text = added(file, parse_profile(name, section, "ottla profile add"))
    if use:
        text = using(parse_file(file.path, text), name)
    write_file(file.path, text)
    note(f"profile {name} added to {file.path}" + (" and in use" if use else f"; use it with `ottla profile use {name}`"))


@app.add("show")
def show(
    name: Annotated[
        str | None,
        typer.Argument(metavar="PROFILE", show_default=False, help="(default: the one in use)", autocompletion=profiles),
    ] = None,
    json_output: Json = False,
) -> None:
    """Show a profile without its secrets."""
    profile = choose(name, other_cluster=False)
    if profile is None:
        raise Failure("no profile is in use", "name one, or choose it with `ottla profile use NAME`", exit_code=EXIT_USAGE)
    document = profile.document()
    if json_output:
        print_document(document)
        return
    properties = document.pop("properties")
    for key, value in {**document, **properties}.items():
        if value is not None:
            print(f"{key}={str(value).lower() if isinstance(value, bool) else value}")


@app.add("use")
def use(
    name: Annotated[
        str | None, typer.Argument(metavar="PROFILE", show_default=False, help="The profile.", autocompletion=profiles)
    ] = None,
    none: Annotated[bool, typer.Option("--none", help="Use no profile.")] = False,
) -> None:
    """Make a profile the current one, for commands that name no cluster."""
    if (name is None) != none:
        raise Failure("pass either a profile or --none", exit_code=EXIT_USAGE)
    file = read_file()
    profile = None if name is None else file.profile(name)
    write_file(file.path, using(file, name))
    note("no profile is in use" if profile is None else f"profile {profile.name} is in use ({profile.bootstrap_servers})")
    if os.environ.get(VARIABLE):
        note(f"here {VARIABLE}={os.environ[VARIABLE]} overrides it")


@app.add("remove")
def remove(name: Name, yes: Yes = False) -> None:
    """Remove a profile."""
    file = read_file()
    file.profile(name)
    confirm(f"Remove profile {name} from {file.path}?", yes)
    write_file(file.path, removed(file, name))
    note(f"profile {name} removed")


@app.add("edit")
def edit() -> None:
    """Open the file in VISUAL or EDITOR, and check it afterwards."""
    import shlex
    import subprocess

    path = config_path()
    if not path.exists():
        write_file(path, EXAMPLE)
    editor = os.environ.get("VISUAL") or os.environ.get("EDITOR") or "vi"
    try:
        done = subprocess.run([*shlex.split(editor), str(path)], check=False)
    except (OSError, ValueError) as error:
        raise Failure(f"cannot run the editor {editor}: {error}", "set EDITOR", exit_code=EXIT_USAGE) from None
    if done.returncode:
        raise Failure(f"{editor} ended with exit code {done.returncode}")
    file: ProfileFile = read_file()
    if file.current is not None:
        file.profile(file.current)
    note(f"{path}: {len(file.profiles)} profiles")


@app.add("prompt")
def prompt(
    shell: Annotated[
        str | None, typer.Option("--shell", metavar="|".join(SHELLS), help="Print it in the profile's colour for this shell.")
    ] = None,
) -> None:
    """Print the profile in use for a prompt: PS1='$(ottla profile prompt) $ '. Protected ones have a star."""
    if shell is not None and shell not in SHELLS:
        raise Failure(f"--shell {shell!r} is unknown", f"known are {', '.join(SHELLS)}", exit_code=EXIT_USAGE)
    text = prompt_text(shell)
    if text:
        print(text)
