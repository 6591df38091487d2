"""What schema registries promised their clients: subjects, versions, ids."""

from __future__ import annotations

import random
from collections.abc import Iterable
from typing import Final, NamedTuple

from ottla.registry.state import State
from ottla.sim.violation import require

SUBJECTS: Final = 3
REPEATED: Final = 0.3
"""The chance that a schema is one that was sent before."""


class Acknowledged(NamedTuple):
    subject: str
    text: str
    schema_id: int
    version: int


class RegistryModel:
    def __init__(self) -> None:
        self.answers: dict[tuple[str, str], Acknowledged] = {}
        self._ids: dict[str, int] = {}
        self._texts: dict[int, str] = {}
        self._versions: dict[tuple[str, int], str] = {}
        self._sent = 0

    def choose(self, rng: random.Random) -> tuple[str, str]:
        """A subject and a schema to register there."""
        if self._sent and rng.random() < REPEATED:
            number = rng.randint(1, self._sent)
        else:
            self._sent += 1
            number = self._sent
        return f"subject-{rng.randrange(SUBJECTS)}", f'{{"type":"fixed","name":"F{number}","size":4}}'

    def acknowledged(self, subject: str, text: str, schema_id: int, version: int) -> None:
        known = self._ids.setdefault(text, schema_id)
        require(known == schema_id, "schema-id", f"{text} has the ids {known} and {schema_id}")
        other = self._texts.setdefault(schema_id, text)
        require(other == text, "schema-id", f"id {schema_id} is {other} and {text}")
        held = self._versions.setdefault((subject, version), text)
        require(held == text, "schema-version", f"version {version} of {subject} is {held} and {text}")
        answer = Acknowledged(subject, text, schema_id, version)
        first = self.answers.setdefault((subject, text), answer)
        require(first == answer, "schema-version", f"{first} was acknowledged, then {answer}")

    def check(self, states: Iterable[tuple[str, State]]) -> None:
        """Every registry has what was acknowledged, versions without gaps, and one schema for an id."""
        for name, state in states:
            for answer in self.answers.values():
                found = state.version(answer.subject, answer.version)
                here = None if found is None else (found.text, found.id)
                wanted = answer.text, answer.schema_id
                require(here == wanted, "schema-lost", f"{name} has {here} for {answer}")
            for subject in state.subjects(deleted=True):
                versions = state.versions(subject, deleted=True)
                numbers = [each.version for each in versions]
                require(numbers == list(range(1, len(numbers) + 1)), "schema-version", f"{name} has {numbers} of {subject}")
                texts = [each.text for each in versions]
                require(len(set(texts)) == len(texts), "schema-version", f"{name} has a schema twice in {subject}: {texts}")
            meanings: dict[int, str] = {}
            for each in state:
                other = meanings.setdefault(each.id, each.text)
                require(other == each.text, "schema-id", f"{name}: id {each.id} is {other} and {each.text}")
            require(len(set(meanings.values())) == len(meanings), "schema-id", f"{name} has a schema under two ids")
