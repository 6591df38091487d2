"""What a registry knows: subjects, versions, ids per context, references, configs and modes. A core without I/O.

Invariants
1. The state is a function of the log: it changes only in `apply`, record by record in the order of the log.
2. An id means one schema in a context. A record that gives it another one is refused, the first stays (SR15).
3. `apply` never raises. What it refuses it names.
4. An id that any record of the log has had is not free again (`next_id`).
"""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any, Final

from ottla.registry import subjects
from ottla.registry.log_format import (
    CLEAR_SUBJECT,
    CONFIG,
    CONTEXT,
    DELETE_SUBJECT,
    MODE,
    SCHEMA,
    Document,
    LogKey,
    SchemaVersion,
    Skipped,
    key_bytes,
    read_record,
)
from ottla.registry.subjects import DEFAULT_CONTEXT, GLOBAL_CONTEXT
from ottla.schemas.compatibility import DEFAULT_LEVEL
from ottla.schemas.model import Reference

Coordinates = tuple[str, int]
"""A subject and a version."""

READWRITE: Final = "READWRITE"
READONLY: Final = "READONLY"
READONLY_OVERRIDE: Final = "READONLY_OVERRIDE"
IMPORT: Final = "IMPORT"
FORWARD: Final = "FORWARD"
MODES: Final = (READWRITE, READONLY, READONLY_OVERRIDE, IMPORT, FORWARD)

_GLOBAL: Final = subjects.joined(GLOBAL_CONTEXT, "")


class State:
    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """Forget everything, as before the first record."""
        self._versions: dict[str, dict[int, SchemaVersion]] = {}
        self._ids: dict[str, dict[int, dict[Coordinates, None]]] = {}
        """By context: where each id is registered."""
        self._same: dict[str, dict[tuple[bytes, str], int]] = {}
        """By context: the id of a schema, by its GUID and type."""
        self._max_ids: dict[str, int] = {}
        self._referrers: dict[Coordinates, dict[Coordinates, None]] = {}
        self._configs: dict[str | None, Document] = {}
        self._modes: dict[str | None, str] = {}
        self._contexts: dict[str, None] = {}
        self._spellings: dict[LogKey, dict[bytes, None]] = {}
        """Keys that are in the log with other bytes than ours, in the order in which they were written."""

    # The log

    def apply(self, key: bytes | None, value: bytes | None) -> str | None:
        """Apply one record of the log. Returns why the record is refused, None if it is not."""
        read = read_record(key, value)
        if isinstance(read, Skipped):
            return read.why
        found, meaning = read
        assert key is not None
        if found.kind in (SCHEMA, CONFIG, MODE) and key != key_bytes(found):
            self._remember_spelling(found, key, value is None)
        if found.kind == SCHEMA:
            assert found.name is not None
            assert meaning is None or isinstance(meaning, SchemaVersion)
            return self._apply_schema(found.name, found.version, meaning)
        assert not isinstance(meaning, SchemaVersion)
        return self._apply_other(found, meaning)

    def _apply_other(self, key: LogKey, value: Document | None) -> str | None:
        if key.kind == CONFIG:
            if value is None:
                self._configs.pop(key.name, None)
            else:
                self._configs[key.name] = {name: field for name, field in value.items() if name != "subject"}
        elif key.kind == MODE:
            if value is None:
                self._modes.pop(key.name, None)
            elif value.get("mode") not in MODES:
                return f"its mode {value.get('mode')!r} is unknown"
            else:
                self._modes[key.name] = value["mode"]
        elif key.kind == CONTEXT and key.name is not None:
            if value is None:
                self._contexts.pop(key.name, None)
            else:
                self._contexts[key.name] = None
        elif key.kind == DELETE_SUBJECT and key.name is not None and value is not None:
            for version in list(self._versions.get(key.name, {}).values()):
                if version.version <= value["version"] and not version.deleted:
                    self._versions[key.name][version.version] = replace(version, deleted=True)
        elif key.kind == CLEAR_SUBJECT and key.name is not None and value is not None:
            for version in list(self.matching(key.name)):
                if version.deleted:
                    self._remove(version)
        return None

    def _apply_schema(self, subject: str, number: int, version: SchemaVersion | None) -> str | None:
        old = self._versions.get(subject, {}).get(number)
        if version is not None:
            context = subjects.context_of(subject)
            self._max_ids[context] = max(self._max_ids.get(context, 0), version.id)
            first = self._with_id(context, version.id, other_than=(subject, number))
            if first is not None and first.text != version.text:
                return f"its id {version.id} is that of {first.subject} version {first.version}, which is another schema"
        if old is not None:
            self._remove(old)
        if version is not None:
            self._add(version)
        return None

    def _add(self, version: SchemaVersion) -> None:
        where = version.subject, version.version
        context = subjects.context_of(version.subject)
        self._versions.setdefault(version.subject, {})[version.version] = version
        self._ids.setdefault(context, {}).setdefault(version.id, {})[where] = None
        self._same.setdefault(context, {})[digest_of(version), version.schema_type] = version.id
        for reference in version.references:
            target = subjects.referenced(version.subject, reference.subject), reference.version
            self._referrers.setdefault(target, {})[where] = None

    def _remove(self, version: SchemaVersion) -> None:
        where = version.subject, version.version
        context = subjects.context_of(version.subject)
        del self._versions[version.subject][version.version]
        if not self._versions[version.subject]:
            del self._versions[version.subject]
        places = self._ids[context][version.id]
        del places[where]
        if not places:
            del self._ids[context][version.id]
            same = digest_of(version), version.schema_type
            if self._same[context].get(same) == version.id:
                del self._same[context][same]
        for reference in version.references:
            target = subjects.referenced(version.subject, reference.subject), reference.version
            referrers = self._referrers.get(target, {})
            referrers.pop(where, None)
            if not referrers:
                self._referrers.pop(target, None)

    def _with_id(self, context: str, schema_id: int, other_than: Coordinates) -> SchemaVersion | None:
        for where in self._ids.get(context, {}).get(schema_id, ()):
            if where != other_than:
                return self._versions[where[0]][where[1]]
        return None

    def _remember_spelling(self, key: LogKey, spelling: bytes, removed: bool) -> None:
        spellings = self._spellings.setdefault(key, {})
        spellings.pop(spelling, None)
        if not removed:
            spellings[spelling] = None
        elif not spellings:
            del self._spellings[key]

    def spelling(self, key: LogKey) -> bytes:
        """The bytes of a key to write a value with: those that the log has, or compaction would keep both."""
        spellings = self._spellings.get(key)
        return next(reversed(spellings)) if spellings else key_bytes(key)

    def spellings(self, key: LogKey) -> list[bytes]:
        """All bytes that a removal of the key must be written with."""
        return list(dict.fromkeys([*self._spellings.get(key, ()), key_bytes(key)]))

    # Subjects and versions

    def version(self, subject: str, number: int, *, deleted: bool = False) -> SchemaVersion | None:
        found = self._versions.get(subject, {}).get(number)
        return found if found is not None and (deleted or not found.deleted) else None

    def versions(self, subject: str, *, deleted: bool = False) -> list[SchemaVersion]:
        """The versions of a subject in order: the live ones, or all."""
        known = self._versions.get(subject, {})
        return [known[number] for number in sorted(known) if deleted or not known[number].deleted]

    def latest(self, subject: str) -> SchemaVersion | None:
        return max((each for each in self._versions.get(subject, {}).values() if not each.deleted), key=_number, default=None)

    def next_version(self, subject: str) -> int:
        """One more than any version that the subject has, deleted ones included."""
        return max(self._versions.get(subject, {}), default=0) + 1

    def has_subject(self, subject: str, *, deleted: bool = False) -> bool:
        """Whether a subject, or any subject of a context, has a live version, or any version."""
        return any(deleted or not each.deleted for each in self.matching(subject))

    def matching(self, subject: str | None) -> Iterator[SchemaVersion]:
        """All versions of a subject, of a context (`:.c:`), or of everything (None and the global context)."""
        if subject is not None and not subjects.is_context(subject):
            yield from list(self._versions.get(subject, {}).values())
            return
        context = DEFAULT_CONTEXT if subject is None else subjects.context_of(subject)
        for name in list(self._versions):
            if context == GLOBAL_CONTEXT or subject is None or subjects.context_of(name) == context:
                yield from list(self._versions[name].values())

    def subjects(self, prefix: str | None = None, *, deleted: bool = False, deleted_only: bool = False) -> list[str]:
        """The names of subjects, sorted: those with a live version; all; or those without one. None: of all contexts."""
        if deleted_only:
            return sorted(
                name for name in self._with_prefix(prefix) if all(each.deleted for each in self._versions[name].values())
            )
        if deleted:
            return sorted(self._with_prefix(prefix))
        return sorted(
            name for name in self._with_prefix(prefix) if any(not each.deleted for each in self._versions[name].values())
        )

    def _with_prefix(self, prefix: str | None) -> Iterator[str]:
        if prefix is not None and prefix.startswith(subjects.ANY_CONTEXT):
            rest = prefix.removeprefix(subjects.ANY_CONTEXT)
            return (name for name in self._versions if subjects.split(name)[1].startswith(rest))
        return (name for name in self._versions if prefix is None or name.startswith(prefix))

    def contexts(self) -> list[str]:
        # Of the ids: look-ups ask this, and there may be a hundred thousand subjects.
        used = [context for context, ids in self._ids.items() if ids]
        return sorted({DEFAULT_CONTEXT, *self._contexts, *used})

    def knows_context(self, context: str) -> bool:
        """Whether the log has a record of the context."""
        return context == DEFAULT_CONTEXT or context in self._contexts

    # Ids

    def next_id(self, context: str) -> int:
        return self._max_ids.get(context, 0) + 1

    def max_id(self, context: str) -> int:
        return self._max_ids.get(context, 0)

    def places(self, context: str, schema_id: int) -> list[SchemaVersion]:
        """Where an id is registered, deleted versions included."""
        return [self._versions[subject][number] for subject, number in self._ids.get(context, {}).get(schema_id, ())]

    def same(self, context: str, version: SchemaVersion) -> list[SchemaVersion]:
        """Where this very schema is registered in a context, deleted versions included. Its subject, version and id do not
        matter."""
        schema_id = self._same.get(context, {}).get((digest_of(version), version.schema_type))
        return [] if schema_id is None else self.places(context, schema_id)

    def with_guid(self, guid: uuid.UUID) -> list[tuple[str, int]]:
        """The contexts in which a schema has this GUID, the default one first, each with its id there."""
        found = {
            (context, schema_id)
            for context, known in self._same.items()
            for schema_type in ("AVRO", "JSON", "PROTOBUF")
            if (schema_id := known.get((guid.bytes, schema_type))) is not None
        }
        return sorted(found)

    # References

    def referrers(self, subject: str, number: int, *, deleted: bool = False) -> list[SchemaVersion]:
        """The versions that reference this one: the live ones, or all."""
        found = (self._versions[name][version] for name, version in self._referrers.get((subject, number), ()))
        return [each for each in found if deleted or not each.deleted]

    def target(self, subject: str, reference: Reference) -> SchemaVersion | None:
        """What a reference of a schema of `subject` means: also a deleted version. Version -1 is the latest."""
        name = subjects.referenced(subject, reference.subject)
        return self.latest(name) if reference.version == -1 else self.version(name, reference.version, deleted=True)

    # Config and mode (SR09)

    def config(self, subject: str | None) -> Document | None:
        """The config of a subject or context itself; of everything if None."""
        return self._configs.get(subject)

    def config_in_scope(self, subject: str | None) -> dict[str, Any]:
        """The config that applies: of the subject, else of its context, else of the global context, else the default.

        What the subject's own does not set, except for the level, it takes from the default context's."""
        for scope in _scopes(subject):
            found = self._configs.get(scope)
            if found is not None:
                inherited = self._configs.get(None, {}) if scope == subject else {}
                level = found.get("compatibilityLevel") or inherited.get("compatibilityLevel") or DEFAULT_LEVEL
                return {**inherited, **found, "compatibilityLevel": level}
        return {"compatibilityLevel": DEFAULT_LEVEL}

    def level(self, subject: str) -> str:
        level = self.config_in_scope(subject)["compatibilityLevel"]
        return str(level).upper()

    def mode(self, subject: str | None) -> str | None:
        """The mode of a subject or context itself; of everything if None."""
        return self._modes.get(subject)

    def mode_in_scope(self, subject: str | None) -> str:
        for everywhere in (None, _GLOBAL):
            if self._modes.get(everywhere) == READONLY_OVERRIDE:
                return READONLY_OVERRIDE
        return next((self._modes[scope] for scope in _scopes(subject) if scope in self._modes), READWRITE)

    def subjects_with_mode(self, context: str) -> list[str]:
        return [name for name in self._modes if name is not None and subjects.context_of(name) == context]

    def __iter__(self) -> Iterator[SchemaVersion]:
        for versions in self._versions.values():
            yield from versions.values()


def _scopes(subject: str | None) -> Iterable[str | None]:
    """Where a config or mode is looked for: the subject, its context, the global context."""
    context = DEFAULT_CONTEXT if subject is None else subjects.context_of(subject)
    own = None if context == DEFAULT_CONTEXT else subjects.joined(context, "")
    return dict.fromkeys((subject, own, _GLOBAL))


def _number(version: SchemaVersion) -> int:
    return version.version


def guid_of(version: SchemaVersion) -> uuid.UUID:
    return uuid.UUID(bytes=digest_of(version))


def digest_of(version: SchemaVersion) -> bytes:
    """The GUID of a schema: a hash of text, references, metadata and rules, as Confluent's registry makes it."""
    hashed = hashlib.md5(usedforsecurity=False)
    hashed.update(_bytes(version.text))
    for reference in version.references:
        hashed.update(_bytes(reference.name + reference.subject))
        hashed.update(reference.version.to_bytes(4, "big", signed=True))
    for document, parts_of in ((version.metadata, _metadata_parts), (version.rule_set, _rule_parts)):
        if document is not None:
            try:
                text = "".join(parts_of(document))
            except (AttributeError, TypeError):  # a log may hold anything
                text = str(document)
            hashed.update(b"\x01" + _bytes(text))
    return hashed.digest()


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _metadata_parts(metadata: Document) -> Iterator[str]:
    for name, tags in sorted((metadata.get("tags") or {}).items()):
        yield from (name, *tags)
    for name, text in sorted((metadata.get("properties") or {}).items()):
        yield from (name, text)
    yield from sorted(metadata.get("sensitive") or ())


def _rule_parts(rule_set: Document) -> Iterator[str]:
    for group in ("migrationRules", "domainRules", "encodingRules"):
        for rule in rule_set.get(group) or ():
            yield from (rule.get(field) or "" for field in ("name", "doc", "kind", "mode", "type"))
            yield from sorted(rule.get("tags") or ())
            for name, text in sorted((rule.get("params") or {}).items()):
                yield from (name, text)
            yield from (rule.get(field) or "" for field in ("expr", "onSuccess", "onFailure"))
            if rule.get("disabled"):
                yield "\x01"
    yield rule_set.get("enableAt") or ""
