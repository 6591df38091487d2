"""Endpoints that write. They run on the leader; `forwarding` brings them there."""

from __future__ import annotations

from typing import Any, Final

from ottla.registry import errors, subjects
from ottla.registry.errors import RegistryError
from ottla.registry.http import documents
from ottla.registry.http.call import Call, checked
from ottla.registry.service import NotLeading
from ottla.registry.state import FORWARD, MODES
from ottla.schemas.compatibility import POLICIES

_CONFIG_FIELDS: Final[dict[str, type]] = {
    "alias": str,
    "normalize": bool,
    "validateFields": bool,
    "validateNewSchemas": bool,
    "validateRules": bool,
    "compatibilityGroup": str,
    "compatibilityPolicy": str,
    "defaultMetadata": dict,
    "overrideMetadata": dict,
    "defaultRuleSet": dict,
    "overrideRuleSet": dict,
}


async def registered(call: Call) -> object:
    """The answer for a schema that is registered already, which any registry gives. NotLeading if it is new."""
    subject, request = call.subject, call.schema_request()
    if not subjects.is_valid(subject):
        raise errors.invalid_subject(subject)
    if call.registry.gives_metadata(subject):
        raise NotLeading
    known = await call.registry.find(subject, request, normalize=call.flag("normalize"), deleted=False)
    if known is None or request.id not in (-1, known.id) or request.version not in (0, -1, known.version):
        raise NotLeading
    return documents.of_registered(known, extended=call.is_extended)


async def register(call: Call) -> object:
    new = await call.registry.register(call.subject, call.schema_request(), normalize=call.flag("normalize"))
    return documents.of_registered(new, extended=call.is_extended)


async def delete_subject(call: Call) -> object:
    return await call.registry.delete_subject(call.subject, permanent=call.flag("permanent"))


async def delete_version(call: Call) -> object:
    return await call.registry.delete_version(call.subject, call.version, permanent=call.flag("permanent"))


async def delete_context(call: Call) -> object:
    await call.registry.delete_context(call.context or subjects.DEFAULT_CONTEXT)
    return None


async def set_config(call: Call) -> object:
    document = call.document()
    changes: dict[str, Any] = {}
    if "compatibility" in document:
        level = document["compatibility"]
        if level is not None and not isinstance(level, str):
            raise errors.invalid_level()
        changes["compatibilityLevel"] = level if level is None else level.upper()
    for name, kind in _CONFIG_FIELDS.items():
        if name in document:
            if document[name] is not None and not isinstance(document[name], kind):
                raise RegistryError(400, f"{name} is not a {kind.__name__}")
            changes[name] = checked(name, document[name])
    if (policy := changes.get("compatibilityPolicy")) is not None:
        changes["compatibilityPolicy"] = policy = policy.upper()
        if policy not in POLICIES:
            raise RegistryError(42203, f"compatibilityPolicy {policy} is not applied by this registry: it is STRICT or LENIENT")
    if changes.get("validateRules"):
        raise RegistryError(42203, "validateRules is not applied by this registry: rules are checked by their form, never run")
    return documents.of_changed_config(await call.registry.set_config(_checked_scope(call), changes))


async def delete_config(call: Call) -> object:
    return documents.of_config(await call.registry.delete_config(call.scope))


async def set_mode(call: Call) -> object:
    mode = call.document().get("mode")
    if not isinstance(mode, str) or mode.upper() not in MODES:
        raise errors.invalid_mode()
    scope = _checked_scope(call)
    if mode.upper() == FORWARD and (scope is None or subjects.context_of(scope) != subjects.GLOBAL_CONTEXT):
        raise RegistryError(42204, "Forward mode only supported on global level")
    return {"mode": await call.registry.set_mode(scope, mode.upper(), force=call.flag("force"))}


async def delete_mode(call: Call) -> object:
    return {"mode": await call.registry.delete_mode(call.scope, recursive=call.flag("recursive"))}


def _checked_scope(call: Call) -> str | None:
    scope = call.scope
    if scope is not None and not subjects.is_context(scope) and not subjects.is_valid(scope):
        raise errors.invalid_subject(scope)
    return scope
