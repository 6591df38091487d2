"""`ottla acl`: who may do what. Lists, adds and removes ACLs, and explains a decision."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ottla.cli.connection import Connection
from ottla.cli.failure import EXIT_USAGE, Failure, did_you_mean
from ottla.cli.options import DEFAULT_BOOTSTRAP_SERVERS, Bootstrap, CommandConfig, Commands, Json, Yes, confirm
from ottla.cli.output import counted, note, print_document, print_table
from ottla.cli.parameters import with_option_groups

if TYPE_CHECKING:
    from ottla.security.acl import AclEntry, ResourcePattern

app = Commands(help="Access control lists: list, add, remove.", no_args_is_help=True)

_VERSION = 3
_HINT_DISABLED = "the brokers have no authorizer: set authorizer.class.name"

Principals = Annotated[
    list[str] | None, typer.Option("--principal", "-u", metavar="USER", help="alice, User:alice or User:* (repeatable).")
]
Operations = Annotated[
    list[str] | None, typer.Option("--operation", "-o", metavar="OPERATION", help="Read, Write, Describe, All, … (repeatable).")
]
Topics = Annotated[list[str] | None, typer.Option("--topic", "-t", metavar="TOPIC", help="A topic, or * (repeatable).")]
Groups = Annotated[list[str] | None, typer.Option("--group", "-g", metavar="GROUP", help="A group, or * (repeatable).")]
Transactions = Annotated[
    list[str] | None, typer.Option("--transactional-id", metavar="ID", help="A transactional id, or * (repeatable).")
]
Cluster = Annotated[bool, typer.Option("--cluster", help="The cluster itself.")]
Tokens = Annotated[list[str] | None, typer.Option("--delegation-token", metavar="ID", help="A delegation token (repeatable).")]
Users = Annotated[list[str] | None, typer.Option("--user", metavar="USER", help="A user as owner of tokens (repeatable).")]
Prefixed = Annotated[bool, typer.Option("--prefixed", help="The names are prefixes of names.")]
Host = Annotated[str | None, typer.Option("--host", metavar="ADDRESS", help="Only from this IP address.")]
Deny = Annotated[bool, typer.Option("--deny", help="Deny instead of allow.")]
Producer = Annotated[bool, typer.Option("--producer", help="What a producer needs: Write, Describe, Create on its topics.")]
Consumer = Annotated[bool, typer.Option("--consumer", help="What a consumer needs: Read, Describe on topics, Read on its group.")]


@dataclass(frozen=True)
class Resources:
    """The resources that a command names."""

    topic: Topics = None
    group: Groups = None
    transactional_id: Transactions = None
    cluster: Cluster = False
    delegation_token: Tokens = None
    user: Users = None

    def patterns(self, *, prefixed: bool) -> list[ResourcePattern]:
        from ottla.security import acl

        pattern = acl.PREFIXED if prefixed else acl.LITERAL
        named = [
            (acl.TOPIC, self.topic),
            (acl.GROUP, self.group),
            (acl.TRANSACTIONAL_ID, self.transactional_id),
            (acl.DELEGATION_TOKEN, self.delegation_token),
            (acl.USER, [_principal(each) for each in self.user or []]),
        ]
        found = [acl.ResourcePattern(kind, name, pattern) for kind, names in named for name in names or []]
        return found + ([acl.ResourcePattern(acl.CLUSTER, acl.CLUSTER_NAME)] if self.cluster else [])


@dataclass(frozen=True)
class Rules:
    """Who may do what with the resources, from where."""

    principal: Principals = None
    operation: Operations = None
    prefixed: Prefixed = False
    host: Host = None
    deny: Deny = False
    producer: Producer = False
    consumer: Consumer = False

    def entries(self, resources: Resources) -> list[tuple[ResourcePattern, AclEntry]]:
        """Each resource with each entry that it gets."""
        from ottla.security.acl import ALLOW, DENY, AclEntry

        patterns, host = resources.patterns(prefixed=self.prefixed), self.host or "*"
        if not patterns:
            raise Failure("name a resource", "--topic, --group, --transactional-id, --cluster, …", exit_code=EXIT_USAGE)
        if not self.principal:
            raise Failure("name a principal", "--principal alice", exit_code=EXIT_USAGE)
        if (self.producer or self.consumer) and (self.operation or self.deny):
            raise Failure("--producer and --consumer choose the operations themselves", exit_code=EXIT_USAGE)
        if self.producer or self.consumer:
            pairs = [pair for pattern in patterns for pair in _of_client(pattern, self.producer, self.consumer)]
        else:
            if not self.operation:
                raise Failure("name an operation", "--operation Read, or --producer, or --consumer", exit_code=EXIT_USAGE)
            pairs = [(pattern, operation_of(each)) for pattern in patterns for each in self.operation]
        _require_effect(pairs, host)
        permission = DENY if self.deny else ALLOW
        return [
            (pattern, AclEntry(_principal(who), _address(host), what, permission))
            for pattern, what in dict.fromkeys(pairs)
            for who in self.principal
        ]

    def choices(self, resources: Resources) -> list[tuple[ResourcePattern, AclChoice]]:
        """Which entries of each resource to remove."""
        from ottla.security.acl import ALLOW, ANY, DENY

        if self.producer or self.consumer:
            return [
                (pattern, (entry.principal, self.host, entry.operation, entry.permission))
                for pattern, entry in self.entries(resources)
            ]
        permission = DENY if self.deny else (ALLOW if self.operation else ANY)
        operations = [operation_of(each) for each in self.operation or []] or [ANY]
        principals: list[str | None] = [_principal(each) for each in self.principal or []] or [None]
        where = _address(self.host) if self.host is not None else None
        return [
            (pattern, (who, where, what, permission))
            for pattern in resources.patterns(prefixed=self.prefixed)
            for who in principals
            for what in operations
        ]


@app.add("list")
@with_option_groups
def list_(
    named: Resources,
    check: Annotated[
        tuple[str, str, str] | None,
        typer.Option(
            "--check",
            metavar="USER OPERATION RESOURCE",
            help="Whether the user may do it, and the rule that decides: alice read topic:orders. Exit code 1 if not.",
        ),
    ] = None,
    principal: Principals = None,
    host: Host = None,
    bootstrap_servers: Bootstrap = DEFAULT_BOOTSTRAP_SERVERS,
    command_config: CommandConfig = None,
    json_output: Json = False,
) -> None:
    """List ACLs, of all resources or of some; with a name, all that apply to it: its own, those of prefixes and of *."""
    connection = Connection(bootstrap_servers, command_config)
    if check is not None:
        _check(connection, *check, host or "*", json_output)
        return
    resources = named.patterns(prefixed=False)
    rows = acls_of(connection, resources)
    wanted = {_principal(each) for each in principal or []}
    rows = [(pattern, entry) for pattern, entry in rows if not wanted or entry.principal in wanted]
    if json_output:
        print_document([acl_document(pattern, entry) for pattern, entry in rows])
    elif rows:
        columns = ["RESOURCE", "NAME", "PATTERN", "PRINCIPAL", "HOST", "OPERATION", "PERMISSION"]
        print_table(columns, [acl_document(pattern, entry).values() for pattern, entry in rows])
    else:
        note("no ACLs match" if resources or wanted else "no ACLs yet; add one with `ottla acl add`")


@app.add("add", changes=True)
@with_option_groups
def add(
    rules: Rules,
    resources: Resources,
    bootstrap_servers: Bootstrap = DEFAULT_BOOTSTRAP_SERVERS,
    command_config: CommandConfig = None,
) -> None:
    """Add ACLs. They hold on all brokers when the command returns."""
    wanted = rules.entries(resources)
    connection = Connection(bootstrap_servers, command_config)
    create_acls(connection, wanted)
    note(f"added {counted(len(wanted), 'ACL')}")
    for who in sorted({entry.principal for _, entry in wanted if not entry.principal.startswith("User:")}):
        note(f"{who} is not a user: clients are User:NAME, unless the brokers have a principal.builder.class of their own")


def create_acls(connection: Connection, wanted: list[tuple[ResourcePattern, AclEntry]]) -> None:
    from ottla.cli.plain_request import call, raise_if_error
    from ottla.protocol.messages.create_acls import AclCreation, CreateAclsRequest, CreateAclsResponse

    creations = [
        AclCreation(
            resource_type=pattern.type,
            resource_name=pattern.name,
            resource_pattern_type=pattern.pattern,
            principal=entry.principal,
            host=entry.host,
            operation=entry.operation,
            permission_type=entry.permission,
        )
        for pattern, entry in wanted
    ]
    answer = call(connection, "create_acls", _VERSION, CreateAclsRequest(creations=creations), CreateAclsResponse)
    for (pattern, entry), result in zip(wanted, answer.results, strict=True):
        explain_disabled(result)
        raise_if_error(result.error_code, f"{entry} on {pattern}", result.error_message)


@app.add("remove", changes=True)
@with_option_groups
def remove(
    rules: Rules,
    resources: Resources,
    yes: Yes = False,
    bootstrap_servers: Bootstrap = DEFAULT_BOOTSTRAP_SERVERS,
    command_config: CommandConfig = None,
    json_output: Json = False,
) -> None:
    """Remove ACLs: those of exactly these resources, and of all principals, operations and hosts that are not named."""
    pairs = rules.choices(resources)
    if not pairs:
        raise Failure("name the resources whose ACLs to remove", "--topic, --group, --cluster, …", exit_code=EXIT_USAGE)
    confirm(f"Remove the ACLs of {', '.join(sorted({str(pattern) for pattern, _ in pairs}))}?", yes)
    removed = delete_acls(Connection(bootstrap_servers, command_config), pairs)
    if json_output:
        print_document([acl_document(pattern, entry) for pattern, entry in removed])
    note(f"removed {counted(len(removed), 'ACL')}")


AclChoice = tuple[str | None, str | None, int, int]
"""Principal, host, operation and permission of the ACLs to remove; None, or the number of ANY, stands for all."""


def delete_acls(connection: Connection, pairs: list[tuple[ResourcePattern, AclChoice]]) -> list[tuple[ResourcePattern, AclEntry]]:
    """Remove ACLs. Returns those that were removed."""
    from ottla.cli.plain_request import call, raise_if_error
    from ottla.protocol.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest, DeleteAclsResponse
    from ottla.security.acl import AclEntry, ResourcePattern

    filters = [
        DeleteAclsFilter(
            resource_type_filter=pattern.type,
            resource_name_filter=pattern.name,
            pattern_type_filter=pattern.pattern,
            principal_filter=who,
            host_filter=where,
            operation=what,
            permission_type=permission,
        )
        for pattern, (who, where, what, permission) in pairs
    ]
    answer = call(connection, "delete_acls", _VERSION, DeleteAclsRequest(filters=filters), DeleteAclsResponse)
    removed: list[tuple[ResourcePattern, AclEntry]] = []
    for result in answer.filter_results:
        explain_disabled(result)
        raise_if_error(result.error_code, "ACLs", result.error_message)
        for found in result.matching_acls:
            pattern = ResourcePattern(found.resource_type, found.resource_name, found.pattern_type)
            raise_if_error(found.error_code, str(pattern), found.error_message)
            removed.append((pattern, AclEntry(found.principal, found.host, found.operation, found.permission_type)))
    return removed


# Reading


def acls_of(connection: Connection, resources: list[ResourcePattern]) -> list[tuple[ResourcePattern, AclEntry]]:
    """The ACLs that apply to these resources, or all."""
    from ottla.cli.plain_request import call, raise_if_error
    from ottla.protocol.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse
    from ottla.security.acl import ANY, MATCH, AclEntry, ResourcePattern

    filters: list[tuple[int, str | None, int]] = [(pattern.type, pattern.name, MATCH) for pattern in resources]
    found: dict[tuple[ResourcePattern, AclEntry], None] = {}
    for kind, name, pattern in filters or [(ANY, None, ANY)]:
        request = DescribeAclsRequest(
            resource_type_filter=kind,
            resource_name_filter=name,
            pattern_type_filter=pattern,
            principal_filter=None,
            host_filter=None,
            operation=ANY,
            permission_type=ANY,
        )
        answer = call(connection, "describe_acls", _VERSION, request, DescribeAclsResponse)
        explain_disabled(answer)
        raise_if_error(answer.error_code, "ACLs", answer.error_message)
        for resource in answer.resources:
            at = ResourcePattern(resource.resource_type, resource.resource_name, resource.pattern_type)
            for acl in resource.acls:
                found[at, AclEntry(acl.principal, acl.host, acl.operation, acl.permission_type)] = None
    return sorted(found)


def _check(connection: Connection, user: str, operation: str, resource: str, host: str, json_output: bool) -> None:
    """The decision that a broker makes, by its ACLs, super users and settings, with the rule that makes it."""
    from ottla.cli.cluster.view import ClusterView
    from ottla.cli.config import describe_settings
    from ottla.security.acl import ResourcePattern
    from ottla.security.authorizer import Authorizer, parse_super_users

    kind, colon, name = resource.partition(":")
    if not colon and kind.lower() != "cluster":
        raise Failure(f"{resource!r} is no resource", "write topic:orders, group:readers or cluster", exit_code=EXIT_USAGE)
    pattern = ResourcePattern(resource_type_of(kind), name or "kafka-cluster")
    what, who = operation_of(operation), _principal(user)
    view = ClusterView(connection)
    settings = describe_settings(connection, "broker", str(next(iter(view.brokers), 0)))
    super_users = settings["super.users"].value if "super.users" in settings else None
    everyone = settings["allow.everyone.if.no.acl.found"].value if "allow.everyone.if.no.acl.found" in settings else None
    authorizer = Authorizer(parse_super_users(super_users or ""), allow_if_no_acl=everyone == "true")
    acls: dict[ResourcePattern, set[AclEntry]] = {}
    for at, entry in acls_of(connection, [pattern]):
        acls.setdefault(at, set()).add(entry)
    authorizer.replace_all({at: frozenset(entries) for at, entries in acls.items()})
    decision = authorizer.explain(who, _address(host), what, pattern)
    verdict = "allowed" if decision.allowed else "denied"
    if json_output:
        print_document({"allowed": decision.allowed, "rule": decision.reason})
    else:
        print(f"{verdict}: {decision.reason}")
    if not decision.allowed:
        raise typer.Exit(1)


def explain_disabled(result: Any) -> None:
    from ottla.errors import ErrorCode

    if result.error_code == ErrorCode.SECURITY_DISABLED:
        raise Failure("the cluster has no ACLs", _HINT_DISABLED, code="SECURITY_DISABLED")


def acl_document(pattern: ResourcePattern, entry: AclEntry) -> dict[str, str]:
    from ottla.security.acl import OPERATION_NAMES, PATTERN_NAMES, PERMISSION_NAMES, RESOURCE_NAMES

    return {
        "resource": RESOURCE_NAMES.get(pattern.type, str(pattern.type)),
        "name": pattern.name,
        "pattern": PATTERN_NAMES.get(pattern.pattern, str(pattern.pattern)),
        "principal": entry.principal,
        "host": entry.host,
        "operation": OPERATION_NAMES.get(entry.operation, str(entry.operation)),
        "permission": PERMISSION_NAMES.get(entry.permission, str(entry.permission)),
    }


# What the options mean


def _require_effect(pairs: list[tuple[ResourcePattern, int]], host: str) -> None:
    """Failure for an ACL that could never apply. Brokers accept it, and who added it believes that it holds."""
    from ottla.security.acl import ALL, OPERATION_NAMES, RESOURCE_NAMES, supported_operations

    if host != "*" and not is_address(host):
        hint = "an ACL compares the client's address, such as 10.0.0.1: no names of hosts and no networks"
        raise Failure(f"{host!r} is no IP address", hint, exit_code=EXIT_USAGE)
    for pattern, what in pairs:
        known = supported_operations(pattern.type)
        if what != ALL and not known >> what & 1:
            kind = RESOURCE_NAMES[pattern.type]
            names = [name for number, name in OPERATION_NAMES.items() if known >> number & 1]
            text = f"a {kind} has no operation {OPERATION_NAMES[what]}"
            raise Failure(text, f"its operations are {', '.join(names)}, or All", exit_code=EXIT_USAGE)


def is_address(text: str) -> bool:
    from ipaddress import ip_address

    try:
        ip_address(text)
    except ValueError:
        return False
    return True


def _address(host: str) -> str:
    """As brokers compare it: IPv6 in Java's form. What is no address stays as it is, so that such an ACL can be removed."""
    from ottla.security.principal import java_address

    return java_address(host) if is_address(host) else host


def _of_client(pattern: ResourcePattern, producer: bool, consumer: bool) -> list[tuple[ResourcePattern, int]]:
    """What a producer and a consumer need on a resource."""
    from ottla.security import acl

    operations: dict[int, list[int]] = {}
    if producer:
        operations[acl.TOPIC] = [acl.WRITE, acl.DESCRIBE, acl.CREATE]
        operations[acl.TRANSACTIONAL_ID] = [acl.WRITE, acl.DESCRIBE]
        operations[acl.CLUSTER] = [acl.IDEMPOTENT_WRITE]
    if consumer:
        operations[acl.TOPIC] = [acl.READ, acl.DESCRIBE, *operations.get(acl.TOPIC, [])]
        operations[acl.GROUP] = [acl.READ]
    if pattern.type not in operations:
        raise Failure(f"a {'producer' if producer else 'consumer'} needs nothing on {pattern}", exit_code=EXIT_USAGE)
    return [(pattern, operation) for operation in operations[pattern.type]]


def _principal(text: str) -> str:
    return text if ":" in text else f"User:{text}"


def operation_of(text: str) -> int:
    from ottla.security.acl import OPERATION_NAMES

    return _number(text, OPERATION_NAMES, "operation")


def resource_type_of(text: str) -> int:
    from ottla.security.acl import RESOURCE_NAMES

    return _number(text, RESOURCE_NAMES, "resource type")


def _number(text: str, names: Any, what: str) -> int:
    """The number of a name in any case, with or without separators: DescribeConfigs, describe-configs, DESCRIBE_CONFIGS."""
    plain = {name.lower(): number for number, name in names.items()}
    found = plain.get(text.replace("-", "").replace("_", "").lower())
    if found is None:
        hint = did_you_mean(text, names.values()) or f"known are {', '.join(names.values())}"
        raise Failure(f"{text!r} is no {what}", hint, exit_code=EXIT_USAGE)
    return int(found)
