"""`ottla schema`: list, show, register, check, compare and delete schemas, and set how they may change."""

from __future__ import annotations

import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import quote

import typer

from ottla.cli.failure import EXIT_USAGE, Failure
from ottla.cli.options import CommandConfig, Commands, Json, read_text_or_stdin
from ottla.cli.output import note, print_document, print_table
from ottla.cli.schema.place import RegistryUrl, registry_at
from ottla.cli.schema.records import SUFFIXES
from ottla.cli.schema.text import difference, pretty

if TYPE_CHECKING:
    from ottla.client.schema_registry import Registered, SchemaRegistry
    from ottla.schemas.model import Reference

app = Commands(help="Schemas of a schema registry: list, show, register, check, diff, delete.", no_args_is_help=True)


_INCOMPATIBLE = 1


class SchemaType(StrEnum):
    AVRO = "avro"
    JSON = "json"
    PROTOBUF = "protobuf"


Subject = Annotated[str, typer.Argument(metavar="SUBJECT", help="As in orders-value; :.context:orders-value in a context.")]
SchemaFile = Annotated[Path, typer.Argument(metavar="FILE", help="A schema; - reads stdin.")]
TypeOption = Annotated[
    SchemaType | None, typer.Option("--type", help="What FILE is. (default: by .avsc, .json, .proto; else avro)")
]
References = Annotated[
    list[str] | None,
    typer.Option("--reference", metavar="NAME=SUBJECT:VERSION", help="A schema that FILE refers to (repeatable)."),
]
Normalize = Annotated[bool, typer.Option("--normalize", help="Ignore the order of what has no order.")]


@app.add("list")
def list_subjects(
    prefix: Annotated[str | None, typer.Option(metavar="TEXT", help="Only subjects that begin with it.")] = None,
    deleted: Annotated[bool, typer.Option("--deleted", help="Deleted ones too.")] = False,
    registry: RegistryUrl = None,
    command_config: CommandConfig = None,
    json_output: Json = False,
) -> None:
    """List subjects with their latest version."""
    with registry_at(registry, command_config) as client:
        query = {
            "latestOnly": "true",
            **({"subjectPrefix": prefix} if prefix else {}),
            **({"deleted": "true"} if deleted else {}),
        }
        found = client.request("GET", "/schemas", query=query)
    rows = [
        {"subject": each["subject"], "version": each["version"], "id": each["id"], "type": each.get("schemaType", "AVRO")}
        for each in found
    ]
    if json_output:
        print_document(rows)
    else:
        print_table(["SUBJECT", "VERSION", "ID", "TYPE"], [each.values() for each in rows], right=["VERSION", "ID"])


@app.add("show")
def show(
    subject: Annotated[str | None, typer.Argument(metavar="[SUBJECT]", help="As in orders-value.")] = None,
    version: Annotated[str, typer.Option("--version", metavar="N", help="A version, or latest.")] = "latest",
    schema_id: Annotated[int | None, typer.Option("--id", metavar="ID", help="The schema of an id instead.")] = None,
    registry: RegistryUrl = None,
    command_config: CommandConfig = None,
    json_output: Json = False,
) -> None:
    """Show a schema: of a subject, or of an id."""
    if (subject is None) == (schema_id is None):
        raise Failure("name a SUBJECT, or an id with --id", exit_code=EXIT_USAGE)
    with registry_at(registry, command_config) as client:
        if schema_id is not None:
            found = client.schema(schema_id)
            places = client.request("GET", f"/schemas/ids/{schema_id}/versions")
        else:
            assert subject is not None
            found = client.version(subject, version)
            places = [{"subject": found.subject, "version": found.version}]
            versions = client.request("GET", f"/subjects/{_segment(subject)}/versions")
            note(f"{subject} has versions {', '.join(map(str, versions))}")
    if json_output:
        print_document(_document(found) | {"versions": places})
        return
    note(f"id {found.schema_id}, {found.schema_type}: " + ", ".join(f"{each['subject']} {each['version']}" for each in places))
    for reference in found.references:
        note(f"refers to {reference.name}: {reference.subject} {reference.version}")
    print(pretty(found.schema_type, found.text))


@app.add("register", changes=True)
def register(
    subject: Subject,
    file: SchemaFile,
    type_: TypeOption = None,
    reference: References = None,
    normalize: Normalize = False,
    registry: RegistryUrl = None,
    command_config: CommandConfig = None,
    json_output: Json = False,
) -> None:
    """Register a schema as the next version of a subject, unless it is there already. Prints its id."""
    schema_type, text = _type(type_, file), read_text_or_stdin(file)
    references = _references(reference)
    with registry_at(registry, command_config) as client:
        schema_id = client.register(subject, schema_type, text, references, normalize=normalize)
        found = client.lookup(subject, schema_type, text, references)
    if json_output:
        print_document({"subject": subject, "version": found.version, "id": schema_id})
    else:
        print(schema_id)
        note(f"{subject} version {found.version}")


@app.add("check")
def check(
    subject: Subject,
    file: SchemaFile,
    type_: TypeOption = None,
    version: Annotated[
        str | None, typer.Option("--version", metavar="N", help="Only against this version. (default: as the level says)")
    ] = None,
    reference: References = None,
    normalize: Normalize = False,
    registry: RegistryUrl = None,
    command_config: CommandConfig = None,
    json_output: Json = False,
) -> None:
    """Say whether a schema could be registered: exit code 0 if so, 1 with the reasons if not. Registers nothing."""
    body = _body(_type(type_, file), read_text_or_stdin(file), _references(reference))
    path = f"/compatibility/subjects/{_segment(subject)}/versions" + (f"/{version}" if version else "")
    with registry_at(registry, command_config) as client:
        answer = client.request("POST", path, body, {"verbose": "true", **({"normalize": "true"} if normalize else {})})
    compatible = bool(answer["is_compatible"])
    messages = [str(each) for each in answer.get("messages") or ()]
    if json_output:
        print_document({"compatible": compatible, "messages": messages})
    elif compatible:
        print("compatible")
    else:
        print("incompatible")
        from ottla.client.schema_registry import verdict_words

        for message in verdict_words(messages):
            print(f"  {message}")
    if not compatible:
        raise typer.Exit(_INCOMPATIBLE)


@app.add("diff")
def diff(
    subject: Subject,
    old: Annotated[str, typer.Argument(metavar="VERSION", help="A version, or latest.")],
    new: Annotated[str, typer.Argument(metavar="VERSION|FILE", help="Another version, or a file.")] = "latest",
    registry: RegistryUrl = None,
    command_config: CommandConfig = None,
) -> None:
    """Show what changed between two versions, or between a version and a file."""
    with registry_at(registry, command_config) as client:
        before = client.version(subject, old)
        first = pretty(before.schema_type, before.text)
        second, name = _version_or_file(client, subject, new, before.schema_type)
    sys.stdout.write(difference(first, second, f"{subject} {before.version}", name))


@app.add("delete", changes=True)
def delete(
    subject: Subject,
    version: Annotated[str | None, typer.Option("--version", metavar="N", help="Only this version.")] = None,
    permanent: Annotated[bool, typer.Option("--permanent", help="For good: of what was deleted before.")] = False,
    registry: RegistryUrl = None,
    command_config: CommandConfig = None,
) -> None:
    """Delete a subject or one version. Its ids still resolve, until it is deleted again with --permanent."""
    path = f"/subjects/{_segment(subject)}" + (f"/versions/{version}" if version else "")
    with registry_at(registry, command_config) as client:
        deleted = client.request("DELETE", path, query={"permanent": "true"} if permanent else None)
    numbers = deleted if isinstance(deleted, list) else [deleted]
    note(f"deleted {subject} {', '.join(map(str, numbers))}{' permanently' if permanent else ''}")


@app.add("compat", changes=lambda options: bool(options["set_"] or options["unset"]))
def compat(
    subject: Annotated[str | None, typer.Argument(metavar="[SUBJECT]", help="Without it: the level of all others.")] = None,
    set_: Annotated[
        str | None,
        typer.Option("--set", metavar="LEVEL", help="NONE, BACKWARD, FORWARD, FULL, or one of them with _TRANSITIVE."),
    ] = None,
    unset: Annotated[bool, typer.Option("--unset", help="Remove the level of the subject.")] = False,
    registry: RegistryUrl = None,
    command_config: CommandConfig = None,
    json_output: Json = False,
) -> None:
    """Show or set the compatibility level: what a new version must be able to read, and be read by."""
    if set_ and unset:
        raise Failure("--set and --unset exclude each other", exit_code=EXIT_USAGE)
    path = "/config" + (f"/{_segment(subject)}" if subject else "")
    with registry_at(registry, command_config) as client:
        if set_:
            client.request("PUT", path, {"compatibility": set_.upper()})
        elif unset:
            client.request("DELETE", path)
        found = client.request("GET", path, query={"defaultToGlobal": "true"})
    level = str(found["compatibilityLevel"])
    if json_output:
        print_document({"subject": subject, "compatibility": level})
    else:
        print(level)


def _segment(subject: str) -> str:
    return quote(subject, safe="")


def _type(given: SchemaType | None, file: Path) -> str:
    return given.value.upper() if given is not None else SUFFIXES.get(file.suffix.lower(), "AVRO")


def _references(words: list[str] | None) -> list[Reference]:
    from ottla.schemas.model import Reference

    found = []
    for word in words or []:
        name, equals, target = word.partition("=")
        subject, colon, version = target.rpartition(":")
        if not (equals and colon and name and subject and version.isdecimal()):
            raise Failure(f"--reference {word!r} is not NAME=SUBJECT:VERSION", exit_code=EXIT_USAGE)
        found.append(Reference(name, subject, int(version)))
    return found


def _body(schema_type: str, text: str, references: list[Reference]) -> dict[str, Any]:
    listed = [{"name": each.name, "subject": each.subject, "version": each.version} for each in references]
    return {"schema": text, "schemaType": schema_type, "references": listed}


def _document(schema: Registered) -> dict[str, Any]:
    return {
        "id": schema.schema_id,
        "type": schema.schema_type,
        "schema": schema.text,
        "references": [{"name": each.name, "subject": each.subject, "version": each.version} for each in schema.references],
    }


def _version_or_file(client: SchemaRegistry, subject: str, word: str, schema_type: str) -> tuple[str, str]:
    """The text, ready to compare, and its name."""
    if word == "latest" or word.isdecimal():
        found = client.version(subject, word)
        return pretty(found.schema_type, found.text), f"{subject} {found.version}"
    return pretty(schema_type, read_text_or_stdin(Path(word))), word
