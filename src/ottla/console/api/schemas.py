"""Schemas of the registry: subjects, versions, what changed between them, and new ones."""

from __future__ import annotations

import fnmatch
from typing import Any, Final
from urllib.parse import quote

from ottla.cli.console.settings import Role
from ottla.cli.schema.text import difference, pretty
from ottla.client.schema_registry import Registered, RegistryFailed, SchemaRegistry, verdict_words
from ottla.console.console import Console
from ottla.console.endpoint import Answer, Call, Endpoint, Param, bad
from ottla.console.schema import BOOLEAN, INTEGER, OBJECT, STRING, document, listed, maybe, one_of, request
from ottla.schemas.model import SCHEMA_TYPES, Reference

VERSIONS_MAX: Final = 100
_LEVELS: Final = (
    "NONE",
    "BACKWARD",
    "BACKWARD_TRANSITIVE",
    "FORWARD",
    "FORWARD_TRANSITIVE",
    "FULL",
    "FULL_TRANSITIVE",
)
_NOT_THERE: Final = 404

_REFERENCE = document(name=STRING, subject=STRING, version=INTEGER)
_VERSION = document(
    version=INTEGER,
    id=INTEGER,
    type=STRING,
    schema=STRING,
    references=listed(_REFERENCE),
    metadata=maybe(OBJECT),
    rules=maybe(OBJECT),
    deleted=BOOLEAN,
)


def _at(subject: str) -> str:
    return f"/subjects/{quote(subject, safe='')}"


def _if_there(client: SchemaRegistry, method: str, path: str, query: dict[str, str] | None = None) -> Any:
    """What the registry answers; None if it has no such thing."""
    try:
        return client.request(method, path, query=query)
    except RegistryFailed as error:
        if error.code // 100 == _NOT_THERE:
            return None
        raise


# Reading


async def list_subjects(console: Console, call: Call) -> Answer:
    search = (call.word("search") or "").lower()
    offset, limit = call.number("offset", 0), call.number("limit", 100, low=1, high=1000)
    deleted = call.flag("deleted")

    def work() -> dict[str, Any]:
        with console.registry.client() as client:
            present = set(client.request("GET", "/subjects"))
            known = set(client.request("GET", "/subjects", query={"deleted": "true"})) if deleted else present
            wild = any(letter in search for letter in "*?")
            matched = sorted(
                each for each in known if (fnmatch.fnmatch(each.lower(), search) if wild else search in each.lower())
            )
            rows = []
            for subject in matched[offset : offset + limit]:
                gone = subject not in present
                versions = _if_there(client, "GET", f"{_at(subject)}/versions", {"deleted": "true"} if gone else None)
                if versions is not None:
                    rows.append({"subject": subject, "versions": versions, "deleted": gone})
            return {"total": len(known), "matched": len(matched), "subjects": rows}

    return await call.blocking(work)


async def get_subject(console: Console, call: Call) -> Answer:
    subject, deleted = call.path("subject"), call.flag("deleted")
    limit = call.number("limit", VERSIONS_MAX, low=1, high=VERSIONS_MAX)

    def work() -> dict[str, Any]:
        with console.registry.client() as client:
            return _subject(client, subject, deleted, limit)

    return await call.blocking(work)


def _subject(client: SchemaRegistry, subject: str, deleted: bool, limit: int) -> dict[str, Any]:
    path = f"{_at(subject)}/versions"
    if deleted:
        numbers = client.request("GET", path, query={"deleted": "true"})
        present = set(_if_there(client, "GET", path) or ())
    else:
        numbers = client.request("GET", path)
        present = set(numbers)
    own = _if_there(client, "GET", f"/config/{quote(subject, safe='')}")
    level = own if own is not None else client.request("GET", "/config")
    shown = sorted(numbers)[-limit:]
    found = [client.version(subject, each, deleted=each not in present) for each in shown]
    return {
        "subject": subject,
        "compatibility": level["compatibilityLevel"],
        "compatibility_of": "registry" if own is None else "subject",
        "versions_total": len(numbers),
        "versions": [_version(each, each.version not in present) for each in found],
    }


def _version(schema: Registered, deleted: bool = False) -> dict[str, Any]:
    return {
        "version": schema.version,
        "id": schema.schema_id,
        "type": schema.schema_type,
        "schema": schema.text,
        "references": [{"name": each.name, "subject": each.subject, "version": each.version} for each in schema.references],
        "metadata": schema.metadata,
        "rules": schema.rule_set,
        "deleted": deleted,
    }


def _number(word: str) -> str:
    if word != "latest" and not word.isdecimal():
        raise bad(f"version {word!r} is neither a number nor latest")
    return word


async def get_schema_version(console: Console, call: Call) -> Answer:
    subject, version = call.path("subject"), _number(call.path("version"))

    def work() -> dict[str, Any]:
        with console.registry.client() as client:
            return _version(client.version(subject, version))

    return await call.blocking(work)


async def diff_schema_versions(console: Console, call: Call) -> Answer:
    subject = call.path("subject")
    before, after = _number(call.word("from") or ""), _number(call.word("to") or "latest")

    def work() -> dict[str, Any]:
        with console.registry.client() as client:
            old, new = client.version(subject, before, deleted=True), client.version(subject, after, deleted=True)
        names = f"{subject} {old.version}", f"{subject} {new.version}"
        texts = pretty(old.schema_type, old.text), pretty(new.schema_type, new.text)
        return {"from": old.version, "to": new.version, "diff": difference(*texts, *names)}

    return await call.blocking(work)


# Changing


async def register_schema(console: Console, call: Call) -> Answer:
    subject, text = call.path("subject"), call.needed("schema", str)
    schema_type = (call.field("type", str) or "AVRO").upper()
    if schema_type not in SCHEMA_TYPES:
        raise bad(f"type {schema_type} is none of {', '.join(SCHEMA_TYPES)}")
    references = [_reference(each) for each in call.field("references", list) or ()]
    dry_run, normalize = call.field("dry_run", bool) or False, call.field("normalize", bool) or False

    def work() -> dict[str, Any]:
        with console.registry.client() as client:
            if dry_run:
                return _check(client, subject, schema_type, text, references, normalize)
            schema_id = client.register(subject, schema_type, text, references, normalize=normalize)
            found = {"compatible": True, "messages": [], "id": schema_id}
            try:
                return {**found, "version": client.lookup(subject, schema_type, text, references).version}
            except RegistryFailed:  # it was normalized, or is deleted again
                return found

    return await call.blocking(work)


def _check(
    client: SchemaRegistry, subject: str, schema_type: str, text: str, references: list[Reference], normalize: bool
) -> dict[str, Any]:
    """Whether a schema could be registered. Registers nothing."""
    listed_ = [{"name": each.name, "subject": each.subject, "version": each.version} for each in references]
    body = {"schema": text, "schemaType": schema_type, "references": listed_}
    query = {"verbose": "true", **({"normalize": "true"} if normalize else {})}
    path = f"/compatibility{_at(subject)}/versions"
    answer = client.request("POST", path, body, query)
    found = {"compatible": bool(answer["is_compatible"]), "messages": verdict_words(map(str, answer.get("messages") or ()))}
    try:
        known = client.lookup(subject, schema_type, text, references)
    except RegistryFailed as error:
        if error.code // 100 != _NOT_THERE:
            raise
        return found
    return {**found, "id": known.schema_id, "version": known.version}


def _reference(each: Any) -> Reference:
    if isinstance(each, dict) and set(each) == {"name", "subject", "version"}:
        name, subject, version = each["name"], each["subject"], each["version"]
        if isinstance(name, str) and isinstance(subject, str) and type(version) is int:
            return Reference(name, subject, version)
    raise bad(f"{each!r} is no reference: it has a name, a subject and a version")


async def set_compatibility(console: Console, call: Call) -> Answer:
    subject, level = call.path("subject"), call.field("level", str)
    if level is not None and level not in _LEVELS:
        raise bad(f"level {level!r} is none of {', '.join(_LEVELS)}")
    path = f"/config/{quote(subject, safe='')}"

    def work() -> dict[str, Any]:
        with console.registry.client() as client:
            if level is None:
                _if_there(client, "DELETE", path)
            else:
                client.request("PUT", path, {"compatibility": level})
            found = client.request("GET", path, query={"defaultToGlobal": "true"})
            return {"subject": subject, "compatibility": found["compatibilityLevel"]}

    return await call.blocking(work)


async def delete_schema(console: Console, call: Call) -> Answer:
    subject, version, permanent = call.path("subject"), call.field("version", int), call.field("permanent", bool) or False
    path = _at(subject) + ("" if version is None else f"/versions/{version}")

    def work() -> dict[str, Any]:
        with console.registry.client() as client:
            found = client.request("DELETE", path, query={"permanent": "true"} if permanent else None)
        return {"subject": subject, "versions": found if isinstance(found, list) else [found], "permanent": permanent}

    return await call.blocking(work)


_DELETED_TOO = Param("deleted", "1: also what is deleted, but not for good", BOOLEAN)

ENDPOINTS = (
    Endpoint(
        "GET",
        "/api/schemas",
        "The subjects of the schema registry with their versions",
        list_subjects,
        document(
            total=INTEGER,
            matched=INTEGER,
            subjects=listed(document(subject=STRING, versions=listed(INTEGER), deleted=BOOLEAN)),
        ),
        params=(
            Param("search", "A part of the name; * and ? are wildcards", STRING),
            Param("offset", "Leave out so many", INTEGER),
            Param("limit", "At most so many", INTEGER),
            _DELETED_TOO,
        ),
    ),
    Endpoint(
        "GET",
        "/api/schemas/{subject}",
        "A subject: its compatibility level and its newest versions",
        get_subject,
        document(
            subject=STRING,
            compatibility=STRING,
            compatibility_of=one_of("subject", "registry"),
            versions_total=INTEGER,
            versions=listed(_VERSION),
        ),
        params=(_DELETED_TOO, Param("limit", f"At most so many versions, {VERSIONS_MAX} by default", INTEGER)),
    ),
    Endpoint(
        "GET",
        "/api/schemas/{subject}/versions/{version}",
        "One version of a subject, by number or `latest`",
        get_schema_version,
        _VERSION,
    ),
    Endpoint(
        "GET",
        "/api/schemas/{subject}/diff",
        "What changed between two versions, as a unified diff",
        diff_schema_versions,
        document(**{"from": INTEGER, "to": INTEGER, "diff": STRING}),
        params=(Param("from", "A version", STRING), Param("to", "A version; the latest by default", STRING)),
    ),
    Endpoint(
        "POST",
        "/api/schemas/{subject}",
        "Register a schema as the next version; with `dry_run` only say whether it could be",
        register_schema,
        document(compatible=BOOLEAN, messages=listed(STRING), id_=INTEGER, version_=INTEGER),
        role=Role.EDITOR,
        changes=True,
        body=request(
            schema=STRING,
            type_=one_of(*SCHEMA_TYPES),
            references_=listed(_REFERENCE),
            normalize_=BOOLEAN,
            dry_run_=BOOLEAN,
        ),
        audit=lambda call: not call.body.get("dry_run"),
    ),
    Endpoint(
        "PUT",
        "/api/schemas/{subject}/compatibility",
        "Set the compatibility level of a subject; null: that of the registry",
        set_compatibility,
        document(subject=STRING, compatibility=STRING),
        role=Role.ADMIN,
        changes=True,
        body=request(level=maybe(one_of(*_LEVELS))),
    ),
    Endpoint(
        "DELETE",
        "/api/schemas/{subject}",
        "Delete a subject or one version; with `permanent` for good, of what was deleted before",
        delete_schema,
        document(subject=STRING, versions=listed(INTEGER), permanent=BOOLEAN),
        role=Role.ADMIN,
        changes=True,
        body=request(version_=maybe(INTEGER), permanent_=BOOLEAN),
    ),
)
