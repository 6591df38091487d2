"""Records of the topic `_schemas`, byte for byte as Confluent's registry writes them (SR12 to SR14).

1. A key has one spelling: this order of fields, no blanks. Compaction goes by the bytes.
2. Whatever order and spelling a key has in the log, it is read. `LogKey` is what it means.
3. Unknown fields of a value are ignored, unknown kinds of key are skipped. What is no such record is a `Skipped` with the reason.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from json.encoder import encode_basestring as _quoted
from typing import Any, Final, NamedTuple

from ottla.schemas.model import AVRO, Reference

SCHEMA: Final = "SCHEMA"
CONFIG: Final = "CONFIG"
MODE: Final = "MODE"
DELETE_SUBJECT: Final = "DELETE_SUBJECT"
CLEAR_SUBJECT: Final = "CLEAR_SUBJECT"
CONTEXT: Final = "CONTEXT"
NOOP: Final = "NOOP"

TENANT: Final = "default"
_KNOWN: Final = frozenset({SCHEMA, CONFIG, MODE, DELETE_SUBJECT, CLEAR_SUBJECT, CONTEXT, NOOP})
_CONFIG_FIELDS: Final = (
    "alias", "aliasForDeks", "normalize", "validateFields", "validateNewSchemas", "validateRules", "compatibilityLevel",
    "compatibilityPolicy", "compatibilityGroup", "defaultMetadata", "overrideMetadata", "defaultRuleSet", "overrideRuleSet",
)  # fmt: skip
_INT32_MAX: Final = 0x7FFFFFFF

_SCHEMA_KEY: Final = re.compile(
    rb'\{"keytype":"SCHEMA","subject":"([^"\\\x00-\x1f]*)","version":(0|[1-9]\d{0,8}),"magic":1\}'
).fullmatch
"""Nearly all keys of a long log, for a quarter of the time that JSON takes."""

Document = Mapping[str, Any]
"""A JSON object."""
LogRecord = tuple[bytes, bytes | None]
"""A key and a value to produce."""


class LogKey(NamedTuple):
    """What a key means. `name` is the subject, or the context of a CONTEXT; None is everything (CONFIG and MODE)."""

    kind: str
    name: str | None = None
    version: int = 0


@dataclass(frozen=True, slots=True)
class SchemaVersion:
    """One version of a subject."""

    subject: str
    version: int
    id: int
    schema_type: str
    text: str
    references: tuple[Reference, ...] = ()
    deleted: bool = False
    metadata: Document | None = None
    rule_set: Document | None = None


@dataclass(frozen=True, slots=True)
class Skipped:
    """A record that is no part of the state. `why` is None for kinds that other registries have and this one does not."""

    why: str | None


Value = SchemaVersion | Document | None


def key_bytes(key: LogKey) -> bytes:
    """The one spelling of a key."""
    name = "" if key.name is None else _quoted(key.name)
    if key.kind == SCHEMA:
        text = f'{{"keytype":"SCHEMA","subject":{name},"version":{key.version},"magic":1}}'
    elif key.kind == CONTEXT:
        text = f'{{"keytype":"CONTEXT","tenant":"{TENANT}","context":{name},"magic":0}}'
    else:
        subject = f'"subject":{name},' if name else ""
        text = f'{{"keytype":"{key.kind}",{subject}"magic":0}}'
    return text.encode("utf-8", "surrogatepass")


def schema_value(version: SchemaVersion) -> bytes:
    fields: dict[str, Any] = {"subject": version.subject, "version": version.version, "id": version.id}
    if version.schema_type != AVRO:
        fields["schemaType"] = version.schema_type
    if version.references:
        fields["references"] = [reference_document(reference) for reference in version.references]
    if version.metadata:
        fields["metadata"] = version.metadata
    if version.rule_set:
        fields["ruleSet"] = version.rule_set
    fields["schema"] = version.text
    fields["deleted"] = version.deleted
    return json_bytes(fields)


def config_document(config: Document) -> dict[str, Any]:
    """A config with its fields in Confluent's order; those that this registry does not know come last."""
    names = [*(name for name in _CONFIG_FIELDS if name in config), *(name for name in config if name not in _CONFIG_FIELDS)]
    return {name: config[name] for name in names}


def reference_document(reference: Reference) -> dict[str, Any]:
    return {"name": reference.name, "subject": reference.subject, "version": reference.version}


def json_bytes(document: object) -> bytes:
    return json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass")


def read_record(key: bytes | None, value: bytes | None) -> tuple[LogKey, Value] | Skipped:
    """The meaning of a record. A value of None deletes what the key names."""
    if key is None:
        return Skipped("it has no key")
    found = _read_key(key)
    if isinstance(found, Skipped):
        return found
    kind = found.kind
    if value is None or kind == NOOP:
        return found, None
    try:
        document = json.loads(value.decode())
    except (ValueError, RecursionError):
        return Skipped("its value is not JSON")
    if not isinstance(document, dict):
        return Skipped("its value is not a JSON object")
    if kind == SCHEMA:
        version = _schema_version(found, document)
        return (found, version) if isinstance(version, SchemaVersion) else version
    if kind == DELETE_SUBJECT and _int(document, "version") is None:
        return Skipped("its value has no version")
    return found, document


def _read_key(key: bytes) -> LogKey | Skipped:
    usual = _SCHEMA_KEY(key)
    if usual is not None and usual[1].isascii():
        return LogKey(SCHEMA, usual[1].decode(), int(usual[2]))
    try:
        fields = json.loads(key.decode())
    except (ValueError, RecursionError):
        return Skipped("its key is not JSON")
    if not isinstance(fields, dict):
        return Skipped("its key is not a JSON object")
    kind = fields.get("keytype")
    if kind not in _KNOWN:
        return Skipped(None if isinstance(kind, str) else "its key has no keytype")
    found = _key(kind, fields)
    return Skipped(f"its key is not that of a {kind}") if found is None else found


def _key(kind: str, fields: Document) -> LogKey | None:
    if kind == NOOP:
        return LogKey(NOOP)
    name = fields.get("context" if kind == CONTEXT else "subject")
    if not isinstance(name, str):
        return LogKey(kind) if name is None and kind in (CONFIG, MODE) else None
    if kind != SCHEMA:
        return LogKey(kind, name)
    version = _int(fields, "version")
    return None if version is None else LogKey(kind, name, version)


def _schema_version(key: LogKey, document: Document) -> SchemaVersion | Skipped:
    schema_id, text = _int(document, "id"), document.get("schema")
    if schema_id is None:
        return Skipped("its schema has no id")
    if not isinstance(text, str):
        return Skipped("its value has no schema")
    schema_type = document.get("schemaType") or AVRO
    if not isinstance(schema_type, str):
        return Skipped("its schemaType is not text")
    references = read_references(document.get("references"))
    if references is None:
        return Skipped("its references are not references")
    metadata, rule_set = document.get("metadata"), document.get("ruleSet")
    assert key.name is not None
    return SchemaVersion(
        key.name,
        key.version,
        schema_id,
        schema_type,
        text,
        references,
        document.get("deleted") is True,
        metadata if isinstance(metadata, dict) else None,
        rule_set if isinstance(rule_set, dict) else None,
    )


def read_references(given: object) -> tuple[Reference, ...] | None:
    """References of a record or a request. None if they are none."""
    if not given:
        return ()
    if not isinstance(given, list):
        return None
    references = []
    for each in given:
        if not isinstance(each, dict):
            return None
        name, subject, version = each.get("name"), each.get("subject"), each.get("version")
        if not (
            isinstance(name, str) and isinstance(subject, str) and isinstance(version, int) and not isinstance(version, bool)
        ):
            return None
        references.append(Reference(name, subject, version))
    return tuple(references)


def _int(fields: Document, name: str) -> int | None:
    value = fields.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _INT32_MAX else None
