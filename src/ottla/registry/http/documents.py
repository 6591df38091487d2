"""Answers as JSON. Fields that are empty are left out; those that Confluent added later only go to clients that take them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ottla.registry.log_format import SchemaVersion, config_document, reference_document
from ottla.registry.state import guid_of
from ottla.schemas.model import AVRO


def of_version(version: SchemaVersion, text: str, *, extended: bool) -> dict[str, Any]:
    document: dict[str, Any] = {"subject": version.subject, "version": version.version, "id": version.id}
    if extended:
        document["guid"] = str(guid_of(version))
    document |= {**_properties(version), "schema": text}
    if extended and version.deleted:
        document["deleted"] = True
    return document


def of_schema(version: SchemaVersion, text: str, *, extended: bool, with_subject: bool = False) -> dict[str, Any]:
    """A schema by its id, wherever it is registered."""
    document: dict[str, Any] = {}
    if extended and with_subject:
        document |= {"subject": version.subject, "version": version.version}
    if extended:
        document["guid"] = str(guid_of(version))
    return {**document, **_properties(version), "schema": text}


def of_registered(version: SchemaVersion, *, extended: bool) -> dict[str, Any]:
    if not extended:
        return {"id": version.id}
    return {
        "id": version.id,
        "version": version.version,
        "guid": str(guid_of(version)),
        **_properties(version),
        "schema": version.text,
    }


def _properties(version: SchemaVersion) -> dict[str, Any]:
    document: dict[str, Any] = {}
    if version.schema_type != AVRO:
        document["schemaType"] = version.schema_type
    if version.references:
        document["references"] = [reference_document(each) for each in version.references]
    if version.metadata:
        document["metadata"] = version.metadata
    if version.rule_set:
        document["ruleSet"] = version.rule_set
    return document


def of_config(config: Mapping[str, Any]) -> dict[str, Any]:
    return config_document(config)


def of_changed_config(config: Mapping[str, Any]) -> dict[str, Any]:
    """The answer to a change: the level has another name there."""
    return {"compatibility" if name == "compatibilityLevel" else name: value for name, value in config.items()}
