"""Random Avro schemas, and changes of one, as JSON."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

PRIMITIVES = ["null", "boolean", "int", "long", "float", "double", "bytes", "string"]
NAMESPACES = ["", "a", "a.b"]


class RandomAvro:
    """Makes schemas whose names are few, so that two of them often meet."""

    def __init__(self, seed: int, namespaces: Sequence[str] = NAMESPACES) -> None:
        self.random = random.Random(seed)
        self._namespaces = namespaces
        self._names: dict[str, str] = {}

    def schema(self) -> Any:
        """A record, as most schemas of values are, or any other type."""
        self._names = {}
        return self._record(0, "") if self.random.random() < 0.8 else self.node(0, "")

    def node(self, depth: int, namespace: str) -> Any:
        kinds = ["primitive"] * 5 + ["union", "union", "array", "map", "enum", "fixed", "record", "name"]
        kind = self.random.choice(kinds if depth < 4 else ["primitive", "name"])
        if kind == "name" and self._names:
            return self.random.choice(list(self._names))
        if kind == "union":
            return self._union(depth, namespace)
        if kind == "array":
            return {"type": "array", "items": self.node(depth + 1, namespace)} | self._properties()
        if kind == "map":
            return {"type": "map", "values": self.node(depth + 1, namespace)} | self._properties()
        if kind == "enum":
            return self._enum(namespace) or "string"
        if kind == "fixed":
            return self._fixed(namespace) or "bytes"
        if kind == "record":
            return self._record(depth, namespace) or "int"
        primitive = self.random.choice(PRIMITIVES)
        choice = self.random.random()
        if choice < 0.15:
            return {"type": primitive}
        if choice < 0.25:
            return {"type": primitive, "logicalType": self.random.choice(["date", "decimal", "uuid"]), "precision": 4}
        return primitive

    def _properties(self) -> dict[str, Any]:
        return (
            {"x": self.random.choice([1, 1.5, 1e10, "é\u0001", {"b": 1, "a": [None, True]}])}
            if self.random.random() < 0.1
            else {}
        )

    def _union(self, depth: int, namespace: str) -> Any:
        branches: dict[str, Any] = {}
        for _ in range(self.random.randint(1, 4)):
            before = dict(self._names)
            branch = self.node(depth + 1, namespace)
            key = branch if isinstance(branch, str) else "union" if isinstance(branch, list) else None
            if isinstance(branch, dict):
                key = branch.get("full") or branch["type"]
            if key == "union" or key in branches:
                self._names = before
                continue
            branches[str(key)] = branch
        return list(branches.values()) or ["null"]

    def _named(self, kind: str, namespace: str) -> tuple[dict[str, Any], str] | None:
        simple = self.random.choice("ABCDE")
        own = self.random.choice(self._namespaces) if self.random.random() < 0.3 else namespace
        full = f"{own}.{simple}" if own else simple
        if full in self._names or (not own and namespace):
            return None
        self._names[full] = kind
        value: dict[str, Any] = {"type": kind, "full": full}
        if self.random.random() < 0.5:
            value["name"] = full if own else simple
        else:
            value |= {"name": simple, "namespace": own}
        if self.random.random() < 0.15:
            value["aliases"] = self.random.sample(["A", "B", "a.C", "x.D"], 2)
        if self.random.random() < 0.15:
            value["doc"] = "some words"
        return value | self._properties(), own

    def _enum(self, namespace: str) -> Any:
        named = self._named("enum", namespace)
        if named is None:
            return None
        symbols = self.random.sample(["R", "G", "B", "Y"], self.random.randint(1, 4))
        default = {"default": self.random.choice(symbols)} if self.random.random() < 0.3 else {}
        return named[0] | {"symbols": symbols} | default

    def _fixed(self, namespace: str) -> Any:
        named = self._named("fixed", namespace)
        return None if named is None else named[0] | {"size": self.random.choice([4, 8])}

    def _record(self, depth: int, namespace: str) -> Any:
        named = self._named("record", namespace)
        if named is None:
            return None
        names = self.random.sample(["f", "g", "h", "i", "j"], self.random.randint(0, 4))
        return named[0] | {"fields": [self._field(name, depth, named[1]) for name in names]}

    def _field(self, name: str, depth: int, namespace: str) -> Any:
        field: dict[str, Any] = {"name": name, "type": self.node(depth + 1, namespace)}
        if self.random.random() < 0.4:
            field |= self._default(field["type"])
        if self.random.random() < 0.1:
            field["aliases"] = [self.random.choice(["f", "g", "k"])]
        if self.random.random() < 0.1:
            field["order"] = self.random.choice(["ascending", "ignore"])
        return field

    def _default(self, node: Any) -> dict[str, Any]:
        first = node[self.random.randrange(len(node))] if isinstance(node, list) else node
        kind = first["type"] if isinstance(first, dict) else first
        values: dict[str, Any] = {
            "null": None, "boolean": True, "int": 1, "long": 2**40, "float": 1.5, "double": 2, "bytes": "\u00ff",
            "string": "s", "array": [], "map": {}, "enum": "R", "fixed": "abcd",
        }  # fmt: skip
        return {"default": values[kind]} if kind in values else {}

    def changed(self, node: Any) -> Any:
        """The schema with a few changes."""
        if isinstance(node, list):
            branches = [self.changed(each) for each in node]
            if self.random.random() < 0.15:
                extra = self.random.choice(PRIMITIVES)
                branches = [each for each in branches if each != extra and not isinstance(each, list)] + [extra]
            if len(branches) > 1 and self.random.random() < 0.1:
                branches.pop(self.random.randrange(len(branches)))
            return branches
        if isinstance(node, str):
            if node in PRIMITIVES and self.random.random() < 0.12:
                return self.random.choice(["int", "long", "float", "double", "bytes", "string", ["null", node]])
            return node
        new = dict(node)
        if new["type"] == "record":
            new["fields"] = [self._changed_field(each) for each in new["fields"] if self.random.random() > 0.08]
            if self.random.random() < 0.2 and not any(each["name"] == "n" for each in new["fields"]):
                new["fields"].append({"name": "n", "type": "int"} | ({"default": 3} if self.random.random() < 0.6 else {}))
        elif new["type"] == "enum" and self.random.random() < 0.3:
            new["symbols"] = sorted({*new["symbols"], "W"}) if self.random.random() < 0.5 else ["R"]
            if new.get("default") not in new["symbols"]:
                new.pop("default", None)
        elif new["type"] == "fixed" and self.random.random() < 0.1:
            new["size"] = 16
        elif new["type"] in ("array", "map"):
            inner = "items" if new["type"] == "array" else "values"
            new[inner] = self.changed(new[inner])
        if "full" in new and self.random.random() < 0.05:
            new["name"] = "Z"
        return new

    def _changed_field(self, field: Any) -> Any:
        new = dict(field)
        if self.random.random() < 0.3:
            new["type"] = self.changed(new["type"])
            new.pop("default", None)
        if self.random.random() < 0.05:
            new |= {"name": f"{new['name']}2", "aliases": [new["name"]]}
        return new


def plain(node: Any) -> Any:
    """The schema without what the generator keeps in it for itself."""
    if isinstance(node, list):
        return [plain(each) for each in node]
    if isinstance(node, dict):
        return {key: plain(value) for key, value in node.items() if key != "full"}
    return node


def without_logical_types(node: Any) -> Any:
    """The schema with the plain types below logical ones, which no verdict looks at."""
    if isinstance(node, list):
        return [without_logical_types(each) for each in node]
    if isinstance(node, dict):
        return {key: without_logical_types(value) for key, value in node.items() if key != "logicalType"}
    return node


class Endless(Exception):
    """The value would be very large, perhaps because a record contains itself without a way out."""


class RandomData:
    """Values of a schema, as fastavro takes them."""

    def __init__(self, seed: int, schema: Any) -> None:
        self.random = random.Random(seed)
        self._types: dict[str, tuple[Any, str]] = {}
        self._learn(schema, "")
        self._parts = 0

    def _learn(self, node: Any, namespace: str) -> None:
        if isinstance(node, list):
            for each in node:
                self._learn(each, namespace)
        elif isinstance(node, dict):
            if "name" in node:
                full = self._full(node, namespace)
                namespace = full.rpartition(".")[0]
                self._types.setdefault(full, (node, namespace))
            for field in node.get("fields", []):
                self._learn(field["type"], namespace)
            for inner in ("items", "values"):
                self._learn(node.get(inner), namespace)

    @staticmethod
    def _full(node: Any, namespace: str) -> str:
        name = str(node["name"])
        space = node.get("namespace", namespace)
        return name if "." in name or not space else f"{space}.{name}"

    def _find(self, name: str, namespace: str) -> tuple[Any, str]:
        return self._types.get(f"{namespace}.{name}") or self._types[name]

    def value(self, node: Any, namespace: str = "", depth: int = 0) -> Any:
        self._parts += 1
        if self._parts > 500 or depth > 30:
            raise Endless
        if isinstance(node, str) and node not in PRIMITIVES:
            node, namespace = self._find(node, namespace)
        if isinstance(node, list):
            return self._of_union(node, namespace, depth)
        kind = node["type"] if isinstance(node, dict) else node
        if kind == "record":
            namespace = self._full(node, namespace).rpartition(".")[0]
            return {each["name"]: self.value(each["type"], namespace, depth + 1) for each in node["fields"]}
        if kind == "array":
            return (
                [] if depth > 6 else [self.value(node["items"], namespace, depth + 1) for _ in range(self.random.randint(0, 2))]
            )
        if kind == "map":
            return (
                {}
                if depth > 6
                else {key: self.value(node["values"], namespace, depth + 1) for key in self.random.sample("ab", 1)}
            )
        if kind == "enum":
            return self.random.choice(node["symbols"])
        if kind == "fixed":
            return bytes(node["size"])
        values = {
            "null": None,
            "boolean": True,
            "int": 7,
            "long": 2**33,
            "float": 0.5,
            "double": 1e300,
            "bytes": b"b",
            "string": "s",
        }
        return values[kind]

    def _of_union(self, branches: list[Any], namespace: str, depth: int) -> Any:
        simple = [each for each in branches if each in PRIMITIVES] if depth > 4 else []
        branch = self.random.choice(simple or branches)
        known, space = (
            (branch, namespace) if not isinstance(branch, str) or branch in PRIMITIVES else self._find(branch, namespace)
        )
        if isinstance(known, dict) and "name" in known:
            return (self._full(known, space if branch is not known else namespace), self.value(branch, namespace, depth + 1))
        return self.value(branch, namespace, depth + 1)
