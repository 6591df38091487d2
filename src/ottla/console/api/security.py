"""ACLs, users and quotas."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ottla.cli.acl import acl_document, acls_of, create_acls, delete_acls, operation_of, resource_type_of
from ottla.cli.connection import Connection
from ottla.cli.console.settings import Role
from ottla.cli.failure import EXIT_USAGE, Failure
from ottla.cli.quota import Entity, alter_quotas, check_quota, stored_quotas
from ottla.cli.user import ITERATIONS, MECHANISM_NAMES, described, mechanisms_of, remove_user, set_password
from ottla.console.console import Console
from ottla.console.endpoint import Answer, Call, Endpoint, bad
from ottla.console.schema import BOOLEAN, INTEGER, NUMBER, OBJECT, STRING, by_name, document, listed, maybe, request
from ottla.security.acl import PATTERN_NAMES, PERMISSION_NAMES, TOPIC, AclEntry, ResourcePattern

ACL = document(type=STRING, name=STRING, pattern=STRING, principal=STRING, host=STRING, operation=STRING, permission=STRING)
_ACLS = document(enabled=BOOLEAN, acls=listed(ACL))
_CHANGED = document(acls=listed(ACL))
_ITERATIONS_MIN, _ITERATIONS_MAX = 4096, 16384

Acl = tuple[ResourcePattern, AclEntry]


def _shown(pattern: ResourcePattern, entry: AclEntry) -> dict[str, str]:
    found = acl_document(pattern, entry)
    return {"type": found.pop("resource").lower(), **{name: _word(name, value) for name, value in found.items()}}


def _word(name: str, value: str) -> str:
    return value.lower() if name in ("pattern", "operation", "permission") else value


def _listed(connection: Connection, resources: list[ResourcePattern]) -> dict[str, Any]:
    try:
        found = acls_of(connection, resources)
    except Failure as failure:
        if failure.code != "SECURITY_DISABLED":
            raise
        return {"enabled": False, "acls": []}
    return {"enabled": True, "acls": [_shown(*each) for each in found]}


async def list_acls(console: Console, call: Call) -> Answer:
    return await call.blocking(_listed, call.connection, [])


async def get_topic_acls(console: Console, call: Call) -> Answer:
    return await call.blocking(_listed, call.connection, [ResourcePattern(TOPIC, call.path("topic"))])


def _read_acls(call: Call) -> list[Acl]:
    documents = call.needed("acls", list)
    if not documents:
        raise bad("acls is empty")
    return [_read_acl(each) for each in documents]


def _read_acl(each: Any) -> Acl:
    if not isinstance(each, Mapping):
        raise bad(f"{each!r} is no ACL")
    words = {name: str(each.get(name) or default) for name, default in _ACL_DEFAULTS.items()}
    if not words["principal"] or (not words["name"] and words["type"] != "cluster"):
        raise bad("an ACL has a principal and the name of a resource")
    try:
        pattern = ResourcePattern(
            resource_type_of(words["type"]), words["name"] or "kafka-cluster", _number(words["pattern"], PATTERN_NAMES)
        )
        principal = words["principal"] if ":" in words["principal"] else f"User:{words['principal']}"
        permission = _number(words["permission"], PERMISSION_NAMES)
        return pattern, AclEntry(principal, words["host"], operation_of(words["operation"]), permission)
    except Failure as failure:
        raise Failure(failure.message, failure.hint, code="BAD_REQUEST", exit_code=EXIT_USAGE) from None


_ACL_DEFAULTS = {
    "type": "topic", "name": "", "pattern": "literal", "principal": "", "host": "*", "operation": "", "permission": "allow"
}  # fmt: skip


def _number(word: str, names: Mapping[int, str]) -> int:
    for number, name in names.items():
        if name.lower() == word.lower():
            return number
    raise bad(f"{word!r} is none of {', '.join(name.lower() for name in names.values())}")


async def add_acls(console: Console, call: Call) -> Answer:
    wanted = _read_acls(call)
    await call.blocking(create_acls, call.connection, wanted)
    return {"acls": [_shown(*each) for each in wanted]}


async def remove_acls(console: Console, call: Call) -> Answer:
    chosen = [(pattern, (entry.principal, entry.host, entry.operation, entry.permission)) for pattern, entry in _read_acls(call)]
    removed = await call.blocking(delete_acls, call.connection, chosen)
    return {"acls": [_shown(*each) for each in removed]}


# Users


async def list_users(console: Console, call: Call) -> Answer:
    return await call.blocking(_users, call.connection)


def _users(connection: Connection) -> dict[str, Any]:
    try:
        found = described(connection, [])
    except Failure as failure:
        if failure.code != "UNSUPPORTED_VERSION":
            raise
        return {"enabled": False, "users": []}
    return {
        "enabled": True,
        "users": [
            {
                "user": user,
                "mechanisms": [
                    {"mechanism": MECHANISM_NAMES.get(number, str(number)), "iterations": iterations}
                    for number, iterations in sorted(infos)
                ],
            }
            for user, infos in sorted(found.items())
        ],
    }


async def set_user(console: Console, call: Call) -> Answer:
    user, password = call.needed("user", str), call.needed("password", str)
    mechanism = call.field("mechanism", str)
    iterations = call.field("iterations", int) or ITERATIONS
    if not user or not password:
        raise bad("the user or the password is empty")
    if not _ITERATIONS_MIN <= iterations <= _ITERATIONS_MAX:
        raise bad(f"iterations is {iterations}, not a number from {_ITERATIONS_MIN} to {_ITERATIONS_MAX}")
    chosen = mechanisms_of([mechanism] if mechanism else None)
    await call.blocking(set_password, call.connection, user, password, chosen, iterations)
    return {"user": user, "mechanisms": chosen}


async def delete_user(console: Console, call: Call) -> Answer:
    user, mechanism = call.path("user"), call.field("mechanism", str)
    removed = await call.blocking(_remove_user, call.connection, user, mechanism)
    return {"user": user, "mechanisms": removed}


def _remove_user(connection: Connection, user: str, mechanism: str | None) -> list[str]:
    chosen = (
        mechanisms_of([mechanism])
        if mechanism
        else [MECHANISM_NAMES[number] for number, _ in described(connection, [user])[user]]
    )
    remove_user(connection, user, chosen)
    return chosen


# Quotas

_KINDS = {"user": "user", "client_id": "client-id", "ip": "ip"}


async def list_quotas(console: Console, call: Call) -> Answer:
    found = await call.blocking(stored_quotas, call.connection)
    words = {kind: name for name, kind in _KINDS.items()}
    return {
        "quotas": [
            {"entity": {words.get(kind, kind): name for kind, name in entity}, "limits": limits}
            for entity, limits in found.items()
        ]
    }


async def alter_quota(console: Console, call: Call) -> Answer:
    entity = _entity(call.needed("entity", dict))
    changes: dict[str, float | None] = {}
    for name, value in (call.field("set", dict) or {}).items():
        if not isinstance(value, (int, float)) or isinstance(value, bool):
            raise bad(f"{name} is {value!r}, not a number")
        changes[name] = float(value)
    changes |= {str(name): None for name in call.field("unset", list) or []}
    if not changes:
        raise bad("nothing to change", "pass set or unset")
    for name in changes:
        check_quota(entity, name)
    await call.blocking(alter_quotas, call.connection, entity, changes)
    return {"entity": call.body["entity"]}


def _entity(document: Mapping[str, Any]) -> Entity:
    unknown = sorted(set(document) - set(_KINDS))
    if unknown or not document:
        raise bad("entity names a user, a client_id, both, or an ip; null is the default of each")
    if "ip" in document and len(document) > 1:
        raise bad("an ip has quotas of its own, not together with a user or client_id")
    for name, value in document.items():
        if value is not None and (not isinstance(value, str) or not value):
            raise bad(f"{name} is {value!r}, not a name or null")
    return tuple((_KINDS[name], document[name]) for name in _KINDS if name in document)


_ACL_BODY = request(
    acls=listed(
        request(type_=STRING, name_=STRING, pattern_=STRING, principal=STRING, host_=STRING, operation=STRING, permission_=STRING)
    )
)

ENDPOINTS = (
    Endpoint("GET", "/api/acls", "All ACLs", list_acls, _ACLS),
    Endpoint("GET", "/api/topics/{topic}/acls", "The ACLs that apply to a topic", get_topic_acls, _ACLS),
    Endpoint("POST", "/api/acls", "Add ACLs", add_acls, _CHANGED, role=Role.ADMIN, changes=True, body=_ACL_BODY),
    Endpoint(
        "DELETE", "/api/acls", "Remove exactly these ACLs", remove_acls, _CHANGED, role=Role.ADMIN, changes=True, body=_ACL_BODY
    ),
    Endpoint(
        "GET",
        "/api/users",
        "The users of SCRAM and their mechanisms",
        list_users,
        document(
            enabled=BOOLEAN,
            users=listed(document(user=STRING, mechanisms=listed(document(mechanism=STRING, iterations=INTEGER)))),
        ),
    ),
    Endpoint(
        "POST",
        "/api/users",
        "Add a user, or change its password",
        set_user,
        document(user=STRING, mechanisms=listed(STRING)),
        role=Role.ADMIN,
        changes=True,
        body=request(user=STRING, password=STRING, mechanism_=maybe(STRING), iterations_=maybe(INTEGER)),
    ),
    Endpoint(
        "DELETE",
        "/api/users/{user}",
        "Remove a user, or one mechanism of it",
        delete_user,
        document(user=STRING, mechanisms=listed(STRING)),
        role=Role.ADMIN,
        changes=True,
        body=request(mechanism_=maybe(STRING)),
    ),
    Endpoint(
        "GET",
        "/api/quotas",
        "All quotas",
        list_quotas,
        document(quotas=listed(document(entity=OBJECT, limits=by_name(NUMBER)))),
    ),
    Endpoint(
        "POST",
        "/api/quotas",
        "Set and remove quotas of a user, a client or an address",
        alter_quota,
        document(entity=OBJECT),
        role=Role.ADMIN,
        changes=True,
        body=request(entity=OBJECT, set_=by_name(NUMBER), unset_=listed(STRING)),
    ),
)
