"""Endpoints that read. Each takes a `Call` and returns a JSON document, or `Text`."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import Any

from ottla import __version__
from ottla.registry import errors, subjects
from ottla.registry.http import documents
from ottla.registry.http.call import Call
from ottla.registry.log_format import SchemaVersion
from ottla.registry.service import conflict_messages
from ottla.registry.state import READWRITE
from ottla.registry.subjects import ANY_CONTEXT, DEFAULT_CONTEXT
from ottla.schemas.model import SCHEMA_TYPES


@dataclass(frozen=True, slots=True)
class Text:
    """An answer that is the text itself, not a JSON string."""

    text: str


async def root(call: Call) -> object:
    return {}


async def schema_types(call: Call) -> object:
    return list(SCHEMA_TYPES)


async def server_id(call: Call) -> object:
    clusters = {"kafka-cluster": call.registry.cluster_id, "schema-registry-cluster": call.registry.group_id}
    return {"id": "", "scope": {"path": [], "clusters": clusters}}


async def server_version(call: Call) -> object:
    return {"version": __version__, "commitId": "ottla"}


async def leader_available(call: Call) -> object:
    """For readiness probes, as Karapace has it: whether a leader is known, so that writes are taken."""
    return {"master_available": call.registry.has_leader}


async def contexts(call: Call) -> object:
    state = call.registry.state

    def is_seen(context: str) -> bool:
        scope = subjects.joined(context, "")
        readable = context == DEFAULT_CONTEXT or call.may_read(scope)
        return readable or any(call.may_read(each.subject) for each in state.matching(scope))

    return call.page([each for each in state.contexts() if is_seen(each)])


# Subjects


async def list_subjects(call: Call) -> object:
    deleted, deleted_only = call.flag("deleted"), call.flag("deletedOnly")
    found = call.registry.state.subjects(_prefix(call), deleted=deleted, deleted_only=deleted_only)
    return call.page([subject for subject in found if call.may_read(subject)])


async def look_up(call: Call) -> object:
    subject, request, deleted = call.subject, call.schema_request(), call.flag("deleted")
    found = None
    for name in _in_contexts(call, subject):
        # In a context that has not this subject the schema's references may be missing too.
        if name != subject and not call.registry.state.has_subject(name, deleted=deleted):
            continue
        found = await call.registry.find(name, request, normalize=call.flag("normalize"), deleted=deleted)
        if found is not None:
            break
    if found is None:
        if not call.registry.state.has_subject(subject, deleted=deleted):
            raise errors.subject_not_found(subject)
        raise errors.schema_not_found()
    return documents.of_version(found, await _text(call, found), extended=call.is_extended)


async def latest_with_metadata(call: Call) -> object:
    """The latest version whose metadata has these properties."""
    subject, deleted = call.subject, call.flag("deleted")
    query = call.request.query_params
    wanted = dict(zip(query.getlist("key"), query.getlist("value"), strict=False)).items()
    for version in reversed(call.registry.state.versions(subject, deleted=deleted)):
        if wanted <= ((version.metadata or {}).get("properties") or {}).items():
            return documents.of_version(version, await _text(call, version), extended=call.is_extended)
    if not call.registry.state.has_subject(subject, deleted=deleted):
        raise errors.subject_not_found(subject)
    raise errors.schema_not_found()


async def list_versions(call: Call) -> object:
    subject, state = call.subject, call.registry.state
    deleted, deleted_only = call.flag("deleted"), call.flag("deletedOnly")
    if not state.has_subject(subject, deleted=deleted or deleted_only):
        raise errors.subject_not_found(subject)
    versions = state.versions(subject, deleted=deleted or deleted_only or call.flag("deletedAsNegative"))
    if call.flag("deletedAsNegative"):
        return call.page([-each.version if each.deleted else each.version for each in versions])
    return call.page([each.version for each in versions if each.deleted or not deleted_only])


async def version(call: Call) -> object:
    found = _version(call, deleted=call.flag("deleted"))
    return documents.of_version(found, await _text(call, found), extended=call.is_extended)


async def version_text(call: Call) -> object:
    return Text(await _text(call, _version(call, deleted=call.flag("deleted"))))


async def referenced_by(call: Call) -> object:
    found = _version(call, deleted=True)
    referrers = call.registry.state.referrers(found.subject, found.version, deleted=call.flag("deleted"))
    return call.page(sorted({each.id for each in referrers if call.may_read(each.subject)}))


# Schemas by id


async def list_schemas(call: Call) -> object:
    state, deleted = call.registry.state, call.flag("deleted")
    found: list[dict[str, Any]] = []
    for subject in filter(call.may_read, state.subjects(_prefix(call), deleted=deleted)):
        versions = state.versions(subject, deleted=deleted)
        for each in versions[-1:] if call.flag("latestOnly") else versions:
            found.append(documents.of_version(each, each.text, extended=call.is_extended))
    return call.page(found)


async def schema(call: Call) -> object:
    found = _by_id(call)
    with_subject = call.text("subject") is not None
    document = documents.of_schema(found, await _text(call, found), extended=call.is_extended, with_subject=with_subject)
    if call.flag("fetchMaxId"):
        document["maxId"] = call.registry.state.max_id(subjects.context_of(found.subject))
    return document


async def schema_text(call: Call) -> object:
    return Text(await _text(call, _by_id(call)))


async def subjects_of_id(call: Call) -> object:
    return call.page(list(dict.fromkeys(each.subject for each in _places(call))))


async def versions_of_id(call: Call) -> object:
    return call.page([{"subject": each.subject, "version": each.version} for each in _places(call)])


async def schema_by_guid(call: Call) -> object:
    found = _by_guid(call)
    if not found:
        raise errors.schema_not_found(call.segments["guid"])
    context, schema_id = found[0]
    place = next(each for each in call.registry.state.places(context, schema_id) if call.may_read(each.subject))
    return documents.of_schema(place, await _text(call, place), extended=call.is_extended)


async def ids_of_guid(call: Call) -> object:
    return [{"context": context, "id": schema_id} for context, schema_id in _by_guid(call)]


# Compatibility


async def test_version(call: Call) -> object:
    subject, number, state = call.subject, call.version, call.registry.state
    found = state.latest(subject) if number == -1 else state.version(subject, number)
    if found is None and number != -1:
        raise errors.version_not_found(number)
    return await _test(call, subject, [] if found is None else [found])


async def test_subject(call: Call) -> object:
    return await _test(call, call.subject, call.registry.state.versions(call.subject))


async def _test(call: Call, subject: str, earlier: list[SchemaVersion]) -> object:
    verbose = call.flag("verbose")
    try:
        verdict = await call.registry.compare(subject, call.schema_request(), earlier, normalize=call.flag("normalize"))
    except errors.RegistryError as error:
        if error.code != 42201 or not verbose:
            raise
        return {"is_compatible": False, "messages": [error.message]}
    answer: dict[str, Any] = {"is_compatible": not verdict.conflicts}
    if verbose:
        answer["messages"] = conflict_messages(verdict)
    return answer


# Config and mode


async def config(call: Call) -> object:
    scope, state = call.scope, call.registry.state
    if scope is not None and not _is_global(scope) and not call.flag("defaultToGlobal") and state.config(scope) is None:
        raise errors.config_not_found(scope)
    return documents.of_config(state.config_in_scope(scope))


async def mode(call: Call) -> object:
    scope, state = call.scope, call.registry.state
    if call.flag("defaultToGlobal"):
        return {"mode": state.mode_in_scope(scope)}
    found = state.mode(scope)
    if found is None and scope is not None and not _is_global(scope):
        raise errors.mode_not_found(scope)
    return {"mode": found or READWRITE}


# Parts


def _is_global(scope: str) -> bool:
    return subjects.context_of(scope) == subjects.GLOBAL_CONTEXT


def _prefix(call: Call) -> str | None:
    given = call.text("subjectPrefix")
    if call.context is None or (given or "").startswith((":.", ANY_CONTEXT)):
        return given
    return subjects.joined(call.context, given or "")


async def _text(call: Call, found: SchemaVersion) -> str:
    return await call.registry.formatted(found, call.text("format") or "")


def _in_contexts(call: Call, subject: str) -> list[str]:
    """The subject, and those of this name in other contexts: a client that knows no contexts finds them too."""
    context, name = subjects.split(subject)
    if context != DEFAULT_CONTEXT or call.context is not None:
        return [subject]
    others = (subjects.joined(each, name) for each in call.registry.state.contexts() if each != DEFAULT_CONTEXT)
    return [subject, *filter(call.may_read, others)]


def _version(call: Call, *, deleted: bool) -> SchemaVersion:
    subject, number, state = call.subject, call.version, call.registry.state
    for name in _in_contexts(call, subject):
        found = state.latest(name) if number == -1 else state.version(name, number, deleted=deleted)
        if found is not None:
            return found
    if not state.has_subject(subject, deleted=deleted):
        raise errors.subject_not_found(subject)
    raise errors.version_not_found(number)


def _all_places(call: Call) -> list[SchemaVersion]:
    """Where an id is registered, as far as the client may see it."""
    return [each for each in _places_in_context(call) if call.may_read(each.subject)]


def _places_in_context(call: Call) -> list[SchemaVersion]:
    """The subject of the request tells the context of an id, also by its name alone."""
    state, schema_id, given = call.registry.state, call.schema_id, call.text("subject")
    if not given:
        return state.places(call.context or DEFAULT_CONTEXT, schema_id)
    subject = subjects.within(call.context, given)
    for name in _in_contexts(call, subject):
        places = state.places(subjects.context_of(name), schema_id)
        if any(each.subject == name for each in places):
            return sorted(places, key=lambda each: each.subject != name)
    return state.places(subjects.context_of(subject), schema_id)


def _by_id(call: Call) -> SchemaVersion:
    places = _all_places(call)
    if not places:
        raise errors.schema_not_found(call.schema_id)
    return places[0]


def _places(call: Call) -> list[SchemaVersion]:
    places = _all_places(call)
    if not places:
        raise errors.schema_not_found()
    found = [each for each in places if call.flag("deleted") or not each.deleted]
    return sorted(found, key=lambda each: (each.subject, each.version))


def _by_guid(call: Call) -> list[tuple[str, int]]:
    try:
        guid = uuid.UUID(call.segments["guid"])
    except ValueError:
        return []
    state = call.registry.state
    return [
        (context, schema_id)
        for context, schema_id in state.with_guid(guid)
        if any(call.may_read(each.subject) for each in state.places(context, schema_id))
    ]
