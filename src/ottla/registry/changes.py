"""The writes of a registry (SR04 to SR09): each function decides by the state, and returns records to produce and the answer.

Nothing changes here. The records change the state when the log has them and the reader applies them. A refusal is a
RegistryError.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

from ottla.registry import errors, subjects
from ottla.registry.log_format import (
    CLEAR_SUBJECT,
    CONFIG,
    CONTEXT,
    DELETE_SUBJECT,
    MODE,
    SCHEMA,
    TENANT,
    LogKey,
    LogRecord,
    SchemaVersion,
    config_document,
    json_bytes,
    key_bytes,
    schema_value,
)
from ottla.registry.state import FORWARD, IMPORT, MODES, READONLY, READONLY_OVERRIDE, READWRITE, State
from ottla.schemas.compatibility import LEVELS

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Change(Generic[T]):
    records: list[LogRecord]
    """To be appended together. None: there is nothing to change."""
    answer: T


# Registering


def imports(state: State, subject: str) -> bool:
    """Whether ids and versions are taken as they come, without a compatibility check."""
    return state.mode_in_scope(subject) in (IMPORT, FORWARD)


def check_may_register(state: State, subject: str, *, with_id: bool) -> None:
    """Refuse what the mode of the subject does not allow."""
    where = f"Subject {subject} in context {_context_text(subject)}"
    mode = state.mode_in_scope(subject)
    if mode in (READONLY, READONLY_OVERRIDE):
        raise errors.not_permitted(f"{where} is in read-only mode")
    if with_id and mode not in (IMPORT, FORWARD):
        raise errors.not_permitted(f"{where} is not in import mode")
    if not with_id and mode != READWRITE:
        raise errors.not_permitted(f"{where} is not in read-write mode")


def registered(state: State, schema: SchemaVersion, *, deleted: bool = False) -> SchemaVersion | None:
    """The version of the subject that is this very schema, the latest if there are several. Its version and id do not matter."""
    same = state.same(subjects.context_of(schema.subject), schema)
    found = [each for each in same if each.subject == schema.subject and (deleted or not each.deleted)]
    return max(found, key=lambda each: each.version, default=None)


def register(state: State, schema: SchemaVersion) -> Change[SchemaVersion]:
    """Register a schema that is canonical, compatible and permitted. An id below 0 and a version below 1 are chosen here."""
    subject, context = schema.subject, subjects.context_of(schema.subject)
    same = state.same(context, schema)
    schema_id = schema.id
    if same and schema_id in (-1, same[0].id):
        known = registered(state, schema)
        if known is not None and schema.version in (0, -1, known.version):
            return Change([], known)
        schema_id = same[0].id
    importing = imports(state, subject)
    next_version = state.next_version(subject)
    if schema.version > 0 and schema.version != next_version and not importing:
        raise errors.invalid_schema(
            f"Version is not one more than previous version: {next_version} is next, not {schema.version}"
        )
    new = replace(
        schema,
        version=schema.version if schema.version > 0 else next_version,
        id=schema_id if schema_id >= 0 else state.next_id(context),
        deleted=False,
    )
    _check_overwrites_nothing(state, new)
    records: list[LogRecord] = []
    if not state.knows_context(context):
        value = json_bytes({"tenant": TENANT, "context": context})
        records.append((key_bytes(LogKey(CONTEXT, context)), value))
    for old in state.versions(subject, deleted=True):
        # A version that was deleted and is registered again is not kept twice, unless somebody still references it.
        is_again = old.deleted and old.id == new.id and old.version < new.version
        if is_again and not state.referrers(subject, old.version, deleted=True):
            records += _removal(state, LogKey(SCHEMA, subject, old.version))
    records.append(_schema_record(state, new))
    return Change(records, new)


def _check_overwrites_nothing(state: State, new: SchemaVersion) -> None:
    """Refuse to give an id or a version that has a schema to another one (SR08)."""
    context = subjects.context_of(new.subject)
    for each in state.places(context, new.id):
        if _content(each) != _content(new):
            raise errors.not_permitted(f"Overwrite new schema with id {new.id} in context {context} is not permitted.")
    known = state.version(new.subject, new.version, deleted=True)
    if known is not None and not known.deleted and (known.id != new.id or _content(known) != _content(new)):
        raise errors.not_permitted(f"Overwrite version {new.version} of subject {new.subject} is not permitted.")


def _content(version: SchemaVersion) -> tuple[object, ...]:
    return version.schema_type, version.text, version.references, version.metadata, version.rule_set


# Deleting


def delete_version(state: State, subject: str, number: int, *, permanent: bool) -> Change[int]:
    """Delete a version; -1 is the latest."""
    found = state.latest(subject) if number == -1 else state.version(subject, number, deleted=True)
    if found is None:
        if not state.has_subject(subject, deleted=True):
            raise errors.subject_not_found(subject)
        raise errors.version_not_found(number)
    if found.deleted and not permanent:
        raise errors.version_soft_deleted(subject, found.version)
    _check_writable(state, subject)
    if state.referrers(subject, found.version, deleted=permanent):
        raise errors.reference_exists(subject, found.version)
    if permanent and not found.deleted:
        raise errors.version_not_soft_deleted(subject, found.version)
    if not permanent:
        return Change([_schema_record(state, replace(found, deleted=True))], found.version)
    records = _removal(state, LogKey(SCHEMA, subject, found.version))
    if len(state.versions(subject, deleted=True)) == 1:
        records += _settings_removal(state, subject)
    return Change(records, found.version)


def delete_subject(state: State, subject: str, *, permanent: bool) -> Change[list[int]]:
    if not state.has_subject(subject, deleted=True):
        raise errors.subject_not_found(subject)
    if not permanent and not state.has_subject(subject):
        raise errors.subject_soft_deleted(subject)
    _check_writable(state, subject)
    versions = state.versions(subject, deleted=permanent)
    for each in versions:
        if any(other.subject != subject for other in state.referrers(subject, each.version, deleted=permanent)):
            raise errors.reference_exists(subject, each.version)
        if permanent and not each.deleted:
            raise errors.subject_not_soft_deleted(subject)
    numbers = [each.version for each in versions]
    if not permanent:
        value = json_bytes({"subject": subject, "version": numbers[-1]})
        return Change([(key_bytes(LogKey(DELETE_SUBJECT, subject)), value)], numbers)
    records: list[LogRecord] = []
    for number in reversed(numbers):  # a version may reference an earlier one
        records += _removal(state, LogKey(SCHEMA, subject, number))
    return Change(records + _settings_removal(state, subject), numbers)


def delete_context(state: State, context: str) -> Change[None]:
    if state.has_subject(subjects.joined(context, ""), deleted=True):
        raise errors.RegistryError(42211, f"The specified context '{context}' is not empty.")
    return Change([(key_bytes(LogKey(CONTEXT, context)), None)], None)


# Config and mode. A subject of None is everything.


def set_config(state: State, subject: str | None, changes: Mapping[str, Any]) -> Change[dict[str, Any]]:
    """Change fields of a config; a field that is None is removed. The answer is the config as it will be."""
    level = changes.get("compatibilityLevel")
    if level is not None and level not in LEVELS:
        raise errors.invalid_level()
    _check_writable(state, subject)
    merged = {**(state.config(subject) or {}), **changes}
    config = config_document({name: value for name, value in merged.items() if value not in (None, "", {})})
    return Change([_settings_record(state, CONFIG, subject, config)], config)


def delete_config(state: State, subject: str | None) -> Change[dict[str, Any]]:
    """The answer is the config as it was."""
    old = state.config(subject)
    if old is None and subject is not None:
        raise errors.subject_not_found(subject)
    _check_writable(state, subject)
    before = state.config_in_scope(subject)
    return Change(_removal(state, LogKey(CONFIG, subject)) if old is not None else [], before)


def set_mode(state: State, subject: str | None, mode: str, *, force: bool) -> Change[str]:
    if mode not in MODES:
        raise errors.invalid_mode()
    records: list[LogRecord] = []
    if mode == IMPORT and state.mode_in_scope(subject) != IMPORT and not force:
        versions = list(state.matching(subject))
        if any(not each.deleted for each in versions):
            raise errors.not_permitted("Cannot import since found existing subjects")
        for each in versions:
            if any(other not in versions for other in state.referrers(each.subject, each.version, deleted=True)):
                raise errors.reference_exists(each.subject, each.version)
            records += _removal(state, LogKey(SCHEMA, each.subject, each.version))
        name = subject or ""
        records.append((key_bytes(LogKey(CLEAR_SUBJECT, name)), json_bytes({"subject": name})))
    return Change([*records, _settings_record(state, MODE, subject, {"mode": mode})], mode)


def delete_mode(state: State, subject: str | None, *, recursive: bool) -> Change[str | None]:
    """The answer is the mode as it was."""
    old = state.mode(subject)
    whole_context = recursive and (subject is None or subjects.is_context(subject))
    if old is None and not whole_context:
        if subject is None:
            return Change([], READWRITE)
        raise errors.subject_not_found(subject)
    names: list[str | None] = [subject] if old is not None else []
    if whole_context:
        names += [name for name in state.subjects_with_mode(subjects.context_of(subject or "")) if name != subject]
    return Change([record for name in names for record in _removal(state, LogKey(MODE, name))], old)


# Records


def _schema_record(state: State, version: SchemaVersion) -> LogRecord:
    return state.spelling(LogKey(SCHEMA, version.subject, version.version)), schema_value(version)


def _settings_record(state: State, kind: str, subject: str | None, settings: Mapping[str, Any]) -> LogRecord:
    value = settings if subject is None else {"subject": subject, **settings}
    return state.spelling(LogKey(kind, subject)), json_bytes(value)


def _removal(state: State, key: LogKey) -> list[LogRecord]:
    return [(spelling, None) for spelling in state.spellings(key)]


def _settings_removal(state: State, subject: str) -> list[LogRecord]:
    """Remove the config and mode of a subject that is no more."""
    records: list[LogRecord] = []
    if state.config(subject) is not None:
        records += _removal(state, LogKey(CONFIG, subject))
    if state.mode(subject) is not None:
        records += _removal(state, LogKey(MODE, subject))
    return records


def _check_writable(state: State, subject: str | None) -> None:
    if state.mode_in_scope(subject) in (READONLY, READONLY_OVERRIDE):
        name = subject or ""
        raise errors.not_permitted(f"Subject {name} in context {_context_text(name)} is in read-only mode")


def _context_text(subject: str) -> str:
    return subjects.joined(subjects.context_of(subject), "")
