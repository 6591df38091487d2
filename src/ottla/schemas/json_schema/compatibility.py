"""Whether a reader's JSON Schema accepts all that a writer's accepts (JS01-JS10).

The writer's schema is taken apart into conjuncts: the schema, what it refers to, and the branches of its `allOf`. Each keyword of
the reader's schema is a demand that some conjunct must meet. Where none does, the writer's `anyOf`, `oneOf` and types are tried
one by one. So a verdict without incompatibilities is a proof; one with them may be too strict.

Two relaxations are the ecosystem's rules, not proofs. A required property may be new if it has a default, which readers fill in
(JS02). The branches of a `oneOf` may change and gain others as those of an `anyOf` (JS06), unless one then accepts all that
another had: that two branches accept some values in common, which `oneOf` refuses, cannot be told in general.

A lenient comparison is Confluent's policy LENIENT and no proof: properties come and go in open and closed schemas, as if data
never had a property that its schema does not list.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import Any, TypeAlias

from ottla.schemas.json_schema.keywords import ATOMS, Fail, array_demands, fail, limit_demands, object_demands, types_of
from ottla.schemas.json_schema.located import REFERENCES, Located
from ottla.schemas.json_text import dumps
from ottla.schemas.model import Incompatibility

Conjuncts: TypeAlias = "tuple[Located, ...]"

STEPS_MAX = 10_000
_ALTERNATIVES = frozenset({"$ref", "allOf", "anyOf", "if", "not", "oneOf"})


class TooComplex(Exception):
    """The comparison took more than STEPS_MAX steps."""


class Comparison:
    """One comparison of two schemas, with the memory of the pairs that it met (JS10)."""

    def __init__(self, *, lenient: bool = False) -> None:
        self.lenient = lenient
        self._results: dict[object, list[Incompatibility] | None] = {}
        self._rests: dict[tuple[object, tuple[str, ...]], Located] = {}
        self._texts: dict[object, str] = {}
        self._kept: list[Conjuncts] = []
        self._begun: dict[object, int] = {}
        self._depth = 0
        self._steps = 0

    def compare(self, reader: Located, writer: Located) -> list[Incompatibility]:
        try:
            return self.accepts(reader, (writer,), "")
        except (TooComplex, RecursionError):
            message = f"the schemas are too complex to compare in {STEPS_MAX:,} steps"
            return [Incompatibility("", "TOO_COMPLEX", message, "nest fewer anyOf and oneOf in each other")]

    def accepts(self, reader: Located, writer: Conjuncts, path: str) -> Fail:
        """Why `reader` does not accept all that every schema of `writer` accepts."""
        if reader.value is True or reader.value == {}:
            return []
        conjuncts = self._conjuncts(writer)
        if any(each.value is False for each in conjuncts) or not types_of(conjuncts):
            return []
        if any(self._same(reader, each) for each in (*writer, *conjuncts)):
            return []
        pair = (reader.key, frozenset(each.key for each in conjuncts))
        if pair in self._results:
            known = self._results[pair]
            if known is None and self._begun[pair] == self._depth:
                return [
                    fail(path, "REFERENCE_LOOP", "the schema refers to itself without a property or item between", "cut the loop")
                ]
            return known or []
        self._steps += 1
        if self._steps > STEPS_MAX:
            raise TooComplex
        self._kept.append(conjuncts)
        self._results[pair] = None
        self._begun[pair] = self._depth
        since = len(self._results)
        found = self._accepts(reader, conjuncts, path)
        if found:
            # What was found compatible meanwhile may rest on the assumption that this pair is.
            for later in list(itertools.islice(self._results, since, None)):
                if not self._results[later]:
                    del self._results[later]
        self._results[pair] = found
        return found

    def accepts_within(self, reader: Located, writer: Conjuncts, path: str) -> Fail:
        """As `accepts`, for properties or items. A pair that so contains itself counts as compatible until shown not to be."""
        self._depth += 1
        try:
            return self.accepts(reader, writer, path)
        finally:
            self._depth -= 1

    def _same(self, one: Located, other: Located) -> bool:
        """Whether both are one text, and mean the same wherever they are."""
        if one.value is other.value:
            return True
        text = self._text(one)
        return text == self._text(other) and 'Ref"' not in text and '"$ref"' not in text

    def _text(self, schema: Located) -> str:
        if schema.key not in self._texts:
            self._kept.append((schema,))
            self._texts[schema.key] = dumps(schema.value)
        return self._texts[schema.key]

    def _conjuncts(self, writer: Conjuncts) -> Conjuncts:
        """The schemas that all hold, without those that say nothing of their own."""
        found: dict[object, Located] = {}
        seen: set[object] = set()
        waiting = list(writer)
        while waiting:
            each = waiting.pop(0)
            if each.value is True or each.key in seen:
                continue
            seen.add(each.key)
            waiting += each.referred()
            if each.is_reference_alone:
                continue
            waiting += each.list("allOf")
            own = self._without(each, ("allOf", *REFERENCES))
            found[own.key] = own
        return tuple(found.values())

    def _without(self, schema: Located, keywords: tuple[str, ...]) -> Located:
        """The schema without these keywords, the same object each time."""
        if isinstance(schema.value, bool) or not any(each in schema.value for each in keywords):
            return schema
        key = (schema.key, keywords)
        if key not in self._rests:
            self._kept.append((schema,))
            rest = {name: each for name, each in schema.value.items() if name not in keywords}
            self._rests[key] = Located(rest, schema.resolver, schema.dialect)
        return self._rests[key]

    def _accepts(self, reader: Located, writer: Conjuncts, path: str) -> Fail:
        if reader.value is False:
            return [fail(path, "SCHEMA_NARROWED", "the reader's schema is false and accepts nothing", "keep the schema")]
        if self._finite(reader, writer):
            return []
        found = self._demands(reader, writer, path)
        if not found:
            return []
        for cases in self._splits(reader, writer):
            if all(not self.accepts(reader, (*rest, case), path) for case, rest in cases):
                return []
        return found

    def _finite(self, reader: Located, writer: Conjuncts) -> bool:
        """Whether the writer lists its values and the reader accepts each of them."""
        lists = [values for each in writer if (values := _listed(each)) is not None]
        if not lists:
            return False
        values = [value for value in lists[0] if all(_valid(each, value, unsure=True) for each in writer)]
        return all(_valid(reader, value, unsure=False) for value in values)

    def _splits(self, reader: Located, writer: Conjuncts) -> Iterable[list[tuple[Located, Conjuncts]]]:
        """Ways to look at the writer's values case by case."""
        for index, each in enumerate(writer):
            for keyword in ("anyOf", "oneOf"):
                branches = each.list(keyword)
                if branches:
                    # Without this keyword, so that it is not split again.
                    rest = self._without(each, (keyword,))
                    yield [(branch, (*writer[:index], rest, *writer[index + 1 :])) for branch in branches]
        types = types_of(writer)
        if 1 < len(types) < len(ATOMS) and isinstance(reader.value, dict) and not _ALTERNATIVES.isdisjoint(reader.value):
            yield [(_typed(writer[0], atom), writer) for atom in sorted(types)]

    def _demands(self, reader: Located, writer: Conjuncts, path: str) -> Fail:
        found: Fail = []
        for target in reader.referred():
            found += self.accepts(target, writer, path)
        if reader.is_reference_alone:
            return found
        found += _type_demand(reader, writer, path)
        found += _value_demands(reader, writer, path)
        found += limit_demands(reader, writer, path)
        types = types_of(writer)
        if "object" in types:
            found += object_demands(self, reader, writer, path)
        if "array" in types:
            found += array_demands(self, reader, writer, path)
        for index, branch in enumerate(reader.list("allOf")):
            found += self.accepts(branch, writer, f"{path}/allOf/{index}")
        for keyword in ("anyOf", "oneOf"):
            if reader.list(keyword):
                found += self._sum(keyword, reader, writer, path)
        found += self._negation(reader, writer, path)
        found += self._condition(reader, writer, path)
        return found

    def _sum(self, keyword: str, reader: Located, writer: Conjuncts, path: str) -> Fail:
        """JS06: the branches of an `anyOf` or `oneOf`."""
        branches = reader.list(keyword)
        fitting = [index for index, each in enumerate(branches) if not self.accepts(each, writer, f"{path}/{keyword}/{index}")]
        if fitting and (keyword == "anyOf" or self._alone(fitting[0], branches, writer)):
            return []
        for each in writer:
            if keyword == "oneOf" and each.list("oneOf") and self._gains(branches, each.list("oneOf"), path):
                return []
        if fitting:
            message = f"branch {fitting[0]} of oneOf accepts the writer's values, but others may too, and oneOf then refuses them"
            return [fail(f"{path}/oneOf", "SUM_TYPE_OVERLAPS", message, "use anyOf, or make the branches exclude each other")]
        message = f"no branch of {keyword} accepts all that the writer's schema accepts"
        narrowed = any(len(each.list(keyword)) > len(branches) for each in writer)
        rule = "SUM_TYPE_NARROWED" if narrowed else "COMBINED_TYPE_SUBSCHEMAS_CHANGED"
        return [fail(f"{path}/{keyword}", rule, message, "keep the writer's schema as one of the branches")]

    def _alone(self, fitting: int, branches: list[Located], writer: Conjuncts) -> bool:
        """Whether no other branch of a `oneOf` accepts values of the writer: their types tell."""
        others = [each for index, each in enumerate(branches) if index != fitting]
        return not any(types_of(self._conjuncts((*writer, each))) for each in others if each.value is not False)

    def _gains(self, new: list[Located], old: list[Located], path: str) -> bool:
        """Whether each old branch of a `oneOf` has a new one of its own, and no other branch takes all that it had."""
        edges = [[not self.accepts(each, (branch,), path) for each in new] for branch in old]
        owner = _matching(edges)
        if owner is None:
            return False
        return not any(
            edges[row][column]
            for row in range(len(old))
            for column in range(len(new))
            if owner.get(column) != row and not (column in owner and not self.accepts(old[owner[column]], (old[row],), path))
        )

    def _negation(self, reader: Located, writer: Conjuncts, path: str) -> Fail:
        """JS07: the reader may refuse no more than the writer."""
        refused = reader.child("not")
        if refused is None:
            return []
        if any((mine := each.child("not")) is not None and not self.accepts(mine, (refused,), path) for each in writer):
            return []
        # Also if nothing is accepted by both.
        if not types_of(self._conjuncts((*writer, refused))):
            return []
        message = "not refuses values that the writer's schema accepts"
        return [fail(f"{path}/not", "NOT_TYPE_EXTENDED", message, "keep not as it was, or let it refuse less")]

    def _condition(self, reader: Located, writer: Conjuncts, path: str) -> Fail:
        condition = reader.child("if")
        if condition is None or (reader.get("then") in (None, True) and reader.get("else") in (None, True)):
            return []
        consequences = [(keyword, each) for keyword in ("then", "else") if (each := reader.child(keyword)) is not None]
        if all(not self.accepts(each, writer, path) for _, each in consequences):
            return []
        for old in writer:
            mine = old.child("if")
            if mine is None or self.accepts(mine, (condition,), path) or self.accepts(condition, (mine,), path):
                continue
            if all(not self.accepts(each, _given(writer, old.child(keyword)), path) for keyword, each in consequences):
                return []
        message = "if, then and else demand what the writer's schema does not"
        return [fail(f"{path}/if", "CONDITION_CHANGED", message, "keep if, then and else as they were")]


def _given(writer: Conjuncts, more: Located | None) -> Conjuncts:
    return writer if more is None else (*writer, more)


def _listed(schema: Located) -> list[Any] | None:
    if isinstance(schema.value, dict):
        if "const" in schema.value:
            return [schema.value["const"]]
        if isinstance(schema.value.get("enum"), list):
            return list(schema.value["enum"])
    return None


def _valid(schema: Located, value: Any, *, unsure: bool) -> bool:
    """Whether a schema accepts a value; `unsure` where jsonschema fails, as it does on some schemas that refer to themselves."""
    validator = schema.dialect.validator(schema.value, _resolver=schema.resolver)
    try:
        return bool(validator.is_valid(value))
    except (TypeError, ValueError, RecursionError):
        return unsure


_TYPED: dict[str, dict[str, Any]] = {
    atom: {"type": "integer" if atom == "integer" else "number" if atom == "fraction" else atom} for atom in ATOMS
}
_TYPED["fraction"] = {"type": "number", "not": {"type": "integer"}}


def _typed(schema: Located, atom: str) -> Located:
    return Located(_TYPED[atom], schema.resolver, schema.dialect)


def _type_demand(reader: Located, writer: Conjuncts, path: str) -> Fail:
    """JS04: each type that the writer may write is one of the reader's."""
    missing = types_of(writer) - types_of((reader,), own=True)
    if not missing:
        return []
    names = " or ".join(sorted({"number" if each == "fraction" else each for each in missing}))
    message = f"the writer's values may be of type {names}, which the reader does not accept"
    narrowed = "TYPE_NARROWED" if types_of(writer) - missing else "TYPE_CHANGED"
    return [fail(f"{path}/type", narrowed, message, f"add {names} to the types")]


def _value_demands(reader: Located, writer: Conjuncts, path: str) -> Fail:
    allowed = _listed(reader)
    if allowed is None:
        return []
    keyword = "const" if "const" in (reader.value if isinstance(reader.value, dict) else {}) else "enum"
    listed = [values for each in writer if (values := _listed(each)) is not None]
    if not listed:
        message = f"{keyword} is new, and the writer's schema accepts other values"
        return [fail(f"{path}/{keyword}", "ENUM_ARRAY_NARROWED", message, f"remove {keyword}")]
    texts = {dumps(each) for each in allowed}
    missing = [
        dumps(each) for each in listed[0] if dumps(each) not in texts and all(_valid(own, each, unsure=True) for own in writer)
    ]
    if not missing:
        return []
    message = f"{keyword} lacks the writer's {', '.join(missing[:5])}"
    rule = "ENUM_ARRAY_CHANGED" if texts - {dumps(each) for each in listed[0]} else "ENUM_ARRAY_NARROWED"
    return [fail(f"{path}/{keyword}", rule, message, "keep the values; more may be added to an enum")]


def _matching(edges: list[list[bool]]) -> dict[int, int] | None:
    """The row of each column in a matching that gives every row a column of its own, or None."""
    owner: dict[int, int] = {}

    def assign(row: int, seen: set[int]) -> bool:
        for column, fits in enumerate(edges[row]):
            if fits and column not in seen:
                seen.add(column)
                if column not in owner or assign(owner[column], seen):
                    owner[column] = row
                    return True
        return False

    if not all(assign(row, set()) for row in range(len(edges))):
        return None
    return owner
