"""Random JSON Schemas of draft 7, changes of one, and values that may fit."""

from __future__ import annotations

import copy
import random
from typing import Any

NAMES = ["a", "b", "cc"]
STRINGS = ["", "x", "xy", "a", "zzzz"]
NUMBERS = [0, 1, 2, 3, 5, 10, -1, 0.5, 2.5]


class RandomJsonSchema:
    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def schema(self, depth: int = 0) -> Any:
        chance = self.random.random()
        if depth > 2 or chance < 0.06:
            return self.random.choice([{}, True, {"type": "string"}, {"type": "integer"}, {"type": "number"}, False])
        if chance < 0.14:
            return {"anyOf": [self.schema(depth + 1) for _ in range(self.random.randint(1, 3))]} | self._some_type(0.2)
        if chance < 0.18:
            types = self.random.sample(["string", "integer", "object", "null", "boolean"], 2)
            return {"oneOf": [{"type": each} for each in types]}
        if chance < 0.24:
            return {"allOf": [self.schema(depth + 1) for _ in range(2)]}
        if chance < 0.28:
            return {"not": self.schema(depth + 2)}
        if chance < 0.32:
            return {"enum": self.random.sample([1, 2, "x", "a", None, True, 2.5], self.random.randint(1, 4))}
        if chance < 0.34:
            return {"if": self.schema(depth + 2), "then": self.schema(depth + 2)}
        if chance < 0.36:
            return {"const": self.random.choice([1, "x", None])}
        if chance < 0.38 and depth:
            return {"$ref": "#/definitions/D"}
        kind = self.random.choice(["string", "number", "integer", "object", "object", "object", "array"])
        typed = {"type": kind} if self.random.random() < 0.85 else {}
        if kind == "string":
            return typed | self._limits("minLength", "maxLength", range(4)) | self._maybe("pattern", ["x", "^a"])
        if kind in ("number", "integer"):
            return (
                typed
                | self._limits("minimum", "maximum", NUMBERS)
                | self._limits("exclusiveMinimum", "exclusiveMaximum", NUMBERS)
                | self._maybe("multipleOf", [1, 2, 0.5, 4])
            )
        return typed | (self._object(depth) if kind == "object" else self._array(depth))

    def document(self) -> Any:
        schema = self.schema()
        if isinstance(schema, dict) and "$ref" not in schema:
            schema = schema | {"definitions": {"D": self.schema(1)}}
        return schema if isinstance(schema, dict) else {"type": "object"}

    def _some_type(self, chance: float) -> dict[str, Any]:
        return {"type": self.random.choice(["string", "number", "object"])} if self.random.random() < chance else {}

    def _maybe(self, keyword: str, values: Any, chance: float = 0.2) -> dict[str, Any]:
        return {keyword: self.random.choice(list(values))} if self.random.random() < chance else {}

    def _limits(self, low: str, high: str, values: Any) -> dict[str, Any]:
        return self._maybe(low, values) | self._maybe(high, values)

    def _object(self, depth: int) -> dict[str, Any]:
        names = self.random.sample(NAMES, self.random.randint(0, 3))
        found: dict[str, Any] = {"properties": {each: self.schema(depth + 1) for each in names}}
        for each in found["properties"].values():
            if isinstance(each, dict) and self.random.random() < 0.2:
                each["default"] = self.random.choice([1, "x", None])
        if names and self.random.random() < 0.3:
            found["required"] = self.random.sample(names, 1)
        if self.random.random() < 0.5:
            found["additionalProperties"] = self.random.choice([False, False, True, self.schema(depth + 1)])
        if self.random.random() < 0.15:
            found["patternProperties"] = {self.random.choice(["^a", "c"]): self.schema(depth + 1)}
        if self.random.random() < 0.1:
            found["dependencies"] = {"a": self.random.choice([["b"], ["b", "cc"], self.schema(depth + 1)])}
        if self.random.random() < 0.05:
            found["propertyNames"] = {"maxLength": self.random.choice([1, 2])}
        return found | self._limits("minProperties", "maxProperties", range(3))

    def _array(self, depth: int) -> dict[str, Any]:
        found: dict[str, Any] = {}
        if self.random.random() < 0.7:
            several = self.random.random() < 0.4
            found["items"] = (
                [self.schema(depth + 1) for _ in range(self.random.randint(1, 2))] if several else self.schema(depth + 1)
            )
        if self.random.random() < 0.3:
            found["additionalItems"] = self.random.choice([False, self.schema(depth + 1)])
        if self.random.random() < 0.1:
            found["contains"] = self.schema(depth + 1)
        return found | self._limits("minItems", "maxItems", range(3)) | self._maybe("uniqueItems", [True, False], 0.1)

    def changed(self, schema: Any) -> Any:
        """The schema with one to three changes somewhere inside it."""
        new = copy.deepcopy(schema)
        for _ in range(self.random.randint(1, 3)):
            places = list(_places(new))
            if not places:
                continue
            place = self.random.choice(places)
            keys = [each for each in place if each != "definitions"]
            chance = self.random.random()
            if chance < 0.4 and keys:
                del place[self.random.choice(keys)]
            elif chance < 0.7:
                extra = self.schema(1)
                place |= (
                    {key: value for key, value in extra.items() if key != "type" and key != "$ref"}
                    if isinstance(extra, dict)
                    else {}
                )
            else:
                for keyword in ("minLength", "minimum", "minItems", "maximum", "maxLength", "maxItems"):
                    if keyword in place:
                        place[keyword] = max(0, place[keyword] + self.random.choice([-1, 1]))
                if isinstance(place.get("properties"), dict) and place["properties"]:
                    name = self.random.choice(list(place["properties"]))
                    place["properties"][name] = self.schema(2)
        return new

    def value(self, depth: int = 0) -> Any:
        chance = self.random.random()
        if depth < 3 and chance < 0.45:
            names = self.random.sample([*NAMES, "d", "ab"], self.random.randint(0, 3))
            return {each: self.value(depth + 1) for each in names}
        if depth < 3 and chance < 0.6:
            return [self.value(depth + 1) for _ in range(self.random.randint(0, 3))]
        return self.random.choice([*STRINGS, *NUMBERS, None, True, 1.0])


def _places(node: Any) -> Any:
    if isinstance(node, dict):
        yield node
        for keyword, value in node.items():
            if keyword in ("properties", "definitions", "patternProperties", "dependencies") and isinstance(value, dict):
                for each in value.values():
                    yield from _places(each)
            elif keyword not in ("enum", "const", "default"):
                yield from _places(value)
    elif isinstance(node, list):
        for each in node:
            yield from _places(each)
