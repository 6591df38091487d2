"""What a new version takes over: metadata and rules, of its subject's config and of the version before it, as in Confluent's.

    the config's default  <  the request's, or else that of the latest version  <  the config's override

A later one wins by name: of a tag, a property, a rule. The rules themselves are for clients to run. A core without I/O; a log may
hold anything, so that what has another shape counts as nothing.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from ottla.registry.log_format import Document, SchemaVersion
from ottla.schemas.compatibility import Conflict
from ottla.schemas.model import JSON, Incompatibility

CONFLUENT_VERSION: Final = "confluent:version"
"""The property that tells a schema's own version. It is set if the client gave a version, or has the property itself."""
RESERVED: Final = "confluent:reserved"
"""The property that lists names, with commas, which no field may take."""
_MIGRATION: Final = ("UPGRADE", "DOWNGRADE", "UPDOWN")
_USE: Final = ("WRITE", "READ", "WRITEREAD")
_RULES: Final = {"migrationRules": _MIGRATION, "domainRules": _USE, "encodingRules": _USE}
"""The kinds of rules, and the modes that those of a kind may have."""
_KINDS: Final = ("TRANSFORM", "CONDITION")
_ENVIRONMENTS: Final = ("NONE", "ALL", "SERVER", "GATEWAY", "CLIENT")
_RULE_NAME: Final = re.compile(r"[^\W\d][\w-]{0,255}")
_METADATA_FIELDS: Final = ("tags", "properties", "sensitive")
INHERITED: Final = ("defaultMetadata", "overrideMetadata", "defaultRuleSet", "overrideRuleSet")


def completed(config: Document, new: SchemaVersion, latest: SchemaVersion | None, next_version: int | None) -> SchemaVersion:
    """The schema as it is registered. Without `next_version` it is only looked for."""
    own_metadata = new.metadata if new.metadata is not None or latest is None else latest.metadata
    own_rules = new.rule_set if new.rule_set is not None or latest is None else latest.rule_set
    metadata = _merged_metadata(config.get("defaultMetadata"), own_metadata)
    metadata = _merged_metadata(metadata, config.get("overrideMetadata"))
    rules = _merged_rules(config.get("defaultRuleSet"), own_rules)
    rules = _merged_rules(rules, config.get("overrideRuleSet"))
    if next_version is not None and (new.version != 0 or version_property(metadata) is not None):
        found = dict(metadata or {})
        metadata = {**found, "properties": {**_object(found.get("properties")), CONFLUENT_VERSION: str(next_version)}}
    return replace(new, metadata=metadata or None, rule_set=rules or None)


def version_property(metadata: Document | None) -> str | None:
    return property_of(metadata, CONFLUENT_VERSION)


def property_of(metadata: Document | None, name: str) -> str | None:
    found = _object(_object(metadata).get("properties")).get(name)
    return found if isinstance(found, str) else None


def is_same(new: SchemaVersion, known: SchemaVersion) -> bool:
    """Whether both have the same metadata and rules, one of them perhaps without the property `confluent:version`."""
    mine, theirs = version_property(new.metadata), version_property(known.metadata)
    if mine is not None and theirs is None and mine != str(known.version):
        return False
    if (mine is None) == (theirs is None):
        same = (new.metadata or None) == (known.metadata or None)
    else:
        same = _without_version(new.metadata) == _without_version(known.metadata)
    return same and (new.rule_set or None) == (known.rule_set or None)


def in_group(config: Document, new: SchemaVersion, earlier: SchemaVersion) -> bool:
    """Whether a new version must be compatible with an earlier one: the property that `compatibilityGroup` names is the same."""
    group = config.get("compatibilityGroup")
    return not isinstance(group, str) or property_of(new.metadata, group) == property_of(earlier.metadata, group)


def canonical_metadata(given: Mapping[str, Any]) -> dict[str, Any]:
    """The one form of the metadata of a request: names and lists in order, as Confluent's registry stores them."""
    tags, properties, sensitive = (given.get(name) for name in _METADATA_FIELDS)
    found = {
        "tags": {name: sorted(set(tags[name])) for name in sorted(tags)} if tags else None,
        "properties": dict(sorted(properties.items())) if properties else None,
        "sensitive": sorted(set(sensitive)) if sensitive else None,
    }
    return {name: value for name, value in found.items() if value}


def canonical_rules(given: Mapping[str, Any]) -> dict[str, Any]:
    """The one form of the rule set of a request."""
    found: dict[str, Any] = {kind: [_canonical_rule(rule) for rule in given.get(kind) or ()] for kind in _RULES}
    found["enableAt"] = given.get("enableAt")
    return {name: value for name, value in found.items() if value}


def _canonical_rule(rule: Mapping[str, Any]) -> dict[str, Any]:
    found = {
        "name": rule["name"],
        "doc": rule.get("doc"),
        "kind": rule.get("kind") or "TRANSFORM",
        "mode": rule.get("mode") or "WRITEREAD",
        "type": rule["type"],
        "tags": sorted(set(rule.get("tags") or ())),
        "params": dict(sorted((rule.get("params") or {}).items())),
        **{name: rule.get(name) for name in ("expr", "onSuccess", "onFailure")},
    }
    return {**{name: value for name, value in found.items() if value}, "disabled": rule.get("disabled") is True}


def trouble_of_metadata(given: Mapping[str, Any]) -> str | None:
    """What is wrong with the metadata of a request."""
    for name, of_value in (("tags", _is_texts), ("properties", _is_text)):
        found = given.get(name)
        if found is not None and not (isinstance(found, dict) and all(of_value(each) for each in found.values())):
            return f"{name} of metadata is not an object of {'lists of text' if name == 'tags' else 'text'}"
    found = given.get("sensitive")
    return None if found is None or _is_texts(found) else "sensitive of metadata is not a list of text"


def trouble_of_rules(given: Mapping[str, Any]) -> str | None:
    """What is wrong with the rule set of a request. The expressions of rules are for those who run them."""
    names: set[str] = set()
    if given.get("enableAt") is not None and given["enableAt"] not in _ENVIRONMENTS:
        return f"enableAt is {given['enableAt']}, and may be {', '.join(_ENVIRONMENTS)}"
    for kind, modes in _RULES.items():
        rules = given.get(kind)
        if rules is None:
            continue
        if not isinstance(rules, list) or not all(isinstance(each, dict) and _is_text(each.get("name")) for each in rules):
            return f"{kind} of ruleSet is not a list of rules with names"
        for each in rules:
            trouble = _trouble_of_rule(each, modes)
            if each["name"] in names:
                trouble = "another rule has its name"
            if trouble is not None:
                return f"rule {each['name']!r} of {kind}: {trouble}"
            names.add(each["name"])
    return None


def _trouble_of_rule(rule: Mapping[str, Any], modes: Sequence[str]) -> str | None:
    if not _RULE_NAME.fullmatch(rule["name"]):
        return "a name has letters, digits, _ and -, begins with a letter or _, and is at most 256 characters long"
    if not rule.get("type") or not _is_text(rule["type"]):
        return "it has no type"
    mode = rule.get("mode") or "WRITEREAD"
    if mode not in modes:
        return f"its mode is {mode}, and may be {', '.join(modes)}"
    several = [name for name in ("onSuccess", "onFailure") if _is_text(rule.get(name)) and "," in rule[name]]
    if several and mode not in ("WRITEREAD", "UPDOWN"):
        return f"{several[0]} has two actions, which only WRITEREAD and UPDOWN have"
    if (rule.get("kind") or "TRANSFORM") not in _KINDS:
        return f"its kind is {rule['kind']}, and may be {', '.join(_KINDS)}"
    return _trouble_of_shape(rule)


def _trouble_of_shape(rule: Mapping[str, Any]) -> str | None:
    for name in ("doc", "expr", "onSuccess", "onFailure"):
        if rule.get(name) is not None and not _is_text(rule[name]):
            return f"its {name} is not text"
    if rule.get("tags") is not None and not _is_texts(rule["tags"]):
        return "its tags are not a list of text"
    params = rule.get("params")
    if params is not None and not (isinstance(params, dict) and all(map(_is_text, params.values()))):
        return "its params are not an object of text"
    if rule.get("disabled") is not None and not isinstance(rule["disabled"], bool):
        return "its disabled is neither true nor false"
    return None


def trouble_of_fields(schema_type: str, fields: Sequence[str]) -> str | None:
    """What `validateFields` refuses: properties of JSON Schema whose name begins with $$."""
    wrong = [name for name in fields if name.startswith("$$")] if schema_type == JSON else []
    return f"the name of property {wrong[0]} begins with $$, and validateFields is true" if wrong else None


def reserved_conflicts(new: SchemaVersion, fields: Sequence[str], latest: SchemaVersion | None) -> list[Conflict]:
    """What `validateFields` refuses: fields whose names are reserved, and names that are no longer reserved."""
    reserved = _reserved(new.metadata)
    gone = sorted(_reserved(latest.metadata) - reserved) if latest is not None else []
    found = [("RESERVED_FIELD_REMOVED", f"{name} is no longer reserved", f"name it in {RESERVED}") for name in gone]
    taken = sorted(reserved & set(fields))
    found += [("FIELD_CONFLICTS_WITH_RESERVED_FIELD", f"field {name} has a reserved name", "choose another") for name in taken]
    return [Conflict(-1, "", Incompatibility("", *each)) for each in found]


def _reserved(metadata: Document | None) -> set[str]:
    return {name.strip() for name in (property_of(metadata, RESERVED) or "").split(",")} - {""}


def _merged_metadata(old: object, new: object) -> Document | None:
    if not isinstance(old, Mapping) or not isinstance(new, Mapping):
        return new if isinstance(new, Mapping) else old if isinstance(old, Mapping) else None
    found: dict[str, Any] = {**old, **new}
    for name in ("tags", "properties"):
        merged = {**_object(old.get(name)), **_object(new.get(name))}
        if merged:
            found[name] = dict(sorted(merged.items()))
    sensitive = {*_list(old.get("sensitive")), *_list(new.get("sensitive"))}
    if sensitive:
        found["sensitive"] = sorted(sensitive)
    return found


def _merged_rules(old: object, new: object) -> Document | None:
    if not isinstance(old, Mapping) or not isinstance(new, Mapping):
        return new if isinstance(new, Mapping) else old if isinstance(old, Mapping) else None
    found: dict[str, Any] = {**old, **{name: value for name, value in new.items() if value is not None}}
    for kind in _RULES:
        later = [each for each in _list(new.get(kind)) if isinstance(each, Mapping)]
        names = {each.get("name") for each in later}
        rules = [each for each in _list(old.get(kind)) if isinstance(each, Mapping) and each.get("name") not in names] + later
        if rules:
            found[kind] = rules
    return found


def _without_version(metadata: Document | None) -> dict[str, Any]:
    properties = {name: each for name, each in _object(_object(metadata).get("properties")).items() if name != CONFLUENT_VERSION}
    rest = {name: each for name, each in _object(metadata).items() if name != "properties" and each}
    return {**rest, **({"properties": properties} if properties else {})}


def _object(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _is_texts(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(each, str) for each in value)
