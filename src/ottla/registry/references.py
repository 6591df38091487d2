"""Follows references through the state: every schema that a schema needs, each before those that use it (SR07)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ottla.registry import errors
from ottla.registry.log_format import SchemaVersion
from ottla.registry.state import State
from ottla.schemas.limits import REFERENCES_MAX
from ottla.schemas.model import Reference, ResolvedReference
from ottla.schemas.work import SchemaText


def resolve(state: State, subject: str, references: Sequence[Reference]) -> tuple[ResolvedReference, ...]:
    """All schemas that a schema of `subject` with these references needs. RegistryError: one is missing, or there is a cycle."""
    found: dict[tuple[str, str, int], ResolvedReference] = {}
    direct: set[tuple[str, str, int]] = set()
    # Without recursion: what references what is in the log, which anybody may have written.
    path: list[tuple[str, int]] = []
    pending: list[tuple[str, Reference, bool]] = [(subject, reference, False) for reference in reversed(references)]
    while pending:
        parent, reference, is_done = pending.pop()
        target = state.target(parent, reference)
        if target is None:
            raise errors.reference_not_found(reference.subject, reference.version)
        key = reference.name, target.subject, target.version
        if is_done:
            path.pop()
            found.setdefault(key, ResolvedReference(reference.name, target.subject, target.version, target.text, direct=False))
            continue
        if parent == subject and not path:
            direct.add(key)
        if key in found:
            continue
        if (target.subject, target.version) in path:
            raise errors.invalid_schema(f'The schema of subject "{target.subject}", version {target.version}, references itself')
        if len(found) + len(path) >= REFERENCES_MAX:
            raise errors.invalid_schema(f"The schema references more than {REFERENCES_MAX:,} others")
        path.append((target.subject, target.version))
        pending.append((parent, reference, True))
        pending += [(target.subject, each, False) for each in reversed(target.references)]
    return tuple(replace(each, direct=key in direct) for key, each in found.items())


def text_of(state: State, version: SchemaVersion) -> SchemaText:
    """A version with all that it needs, for a worker. It was accepted before: what another registry let in is not refused."""
    return SchemaText(version.schema_type, version.text, resolve(state, version.subject, version.references), lenient=True)
