"""Asks the cluster that a command line so far would use for names. Never prints, never raises, never longer than the limit."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import typer

from ottla.cli.failure import Failure
from ottla.cli.profile.chosen import Chosen, choose, given_options, in_use
from ottla.cli.profile.file import read_file

if TYPE_CHECKING:
    from ottla.cli.connection import Connection

LIMIT_S = 0.3


def profiles() -> list[str]:
    try:
        return list(read_file().profiles)
    except Failure:
        return []


def topics(context: typer.Context, incomplete: str) -> list[str]:
    # Internal topics only for who begins to type one.
    return [name for name in _names(context, "topics", incomplete) if incomplete.startswith("_") or not name.startswith("__")]


def groups(context: typer.Context, incomplete: str) -> list[str]:
    return _names(context, "groups", incomplete)


def brokers(context: typer.Context, incomplete: str) -> list[str]:
    return _names(context, "brokers", incomplete)


def _names(context: typer.Context, kind: str, incomplete: str) -> list[str]:
    found: list[str] = []

    def ask() -> None:
        try:
            found.extend(_cached(context, kind))
        except Exception:
            found.clear()  # an error has no place in a line that is being typed

    # A thread, for neither a name server nor a broker keeps to a time limit.
    asking = threading.Thread(target=ask, daemon=True)
    asking.start()
    asking.join(LIMIT_S)
    return [] if asking.is_alive() else [name for name in found if name.startswith(incomplete)]


def _cached(context: typer.Context, kind: str) -> list[str]:
    from ottla.cli.completion.cache import NamesCache

    options = context.params
    given = given_options(context)
    profile = choose(options.get("profile"), other_cluster=bool(given))
    if profile is not None and profile.runs_commands:
        return []  # its command may ask for a password
    cluster = repr([profile, *(str(options.get(name)) for name in sorted(given))])
    cache = NamesCache(cluster, kind)
    names = cache.read()
    if names is None:
        from ottla.cli.connection import Connection

        with in_use(Chosen(profile, servers_named="bootstrap_servers" in given)):
            connection = Connection(options["bootstrap_servers"], options.get("command_config"))
        names = sorted(_ASK[kind](connection))
        cache.write(names)
    return names


def _exchange(connection: Connection, address: tuple[str, int] | None, api_name: str, request: object) -> Any:
    from ottla.cli.connection import split_servers
    from ottla.protocol.registry import API_BY_NAME

    addresses = [address] if address is not None else split_servers(connection.bootstrap_servers)
    for number, (host, port) in enumerate(addresses, 1):
        try:
            channel = connection.channel(host, port, LIMIT_S)
        except OSError:
            if number == len(addresses):
                raise
            continue
        try:
            api = API_BY_NAME[api_name]
            return channel.exchange(api, channel.version_of(api), request, LIMIT_S)
        finally:
            channel.close()


def _metadata(connection: Connection, *, with_topics: bool) -> Any:
    from ottla.protocol.messages.metadata import MetadataRequest

    return _exchange(connection, None, "metadata", MetadataRequest(topics=None if with_topics else []))


def _topics(connection: Connection) -> list[str]:
    return [topic.name for topic in _metadata(connection, with_topics=True).topics if topic.name]


def _brokers(connection: Connection) -> list[str]:
    return [str(broker.node_id) for broker in _metadata(connection, with_topics=False).brokers]


def _groups(connection: Connection) -> list[str]:
    from ottla.protocol.messages.list_groups import ListGroupsRequest

    return [
        group.group_id
        for broker in _metadata(connection, with_topics=False).brokers
        for group in _exchange(connection, (broker.host, broker.port), "list_groups", ListGroupsRequest()).groups
    ]


_ASK: dict[str, Callable[[Connection], list[str]]] = {"topics": _topics, "groups": _groups, "brokers": _brokers}

_BY_METAVAR: dict[str, Callable[..., list[str]]] = {"TOPIC": topics, "GROUP": groups, "PROFILE": profiles}


def entities(context: typer.Context, incomplete: str) -> list[str]:
    """What `ottla config` changes: topics, brokers or groups, by the word before."""
    named = {"topic": topics, "broker": brokers, "group": groups}.get(str(context.params.get("kind")))
    return [] if named is None else named(context, incomplete)


def complete(annotation: Any) -> None:
    """Give a parameter the names that its metavar asks for."""
    for info in getattr(annotation, "__metadata__", ()):
        # Typer takes the first name of an option in Annotated for its default.
        is_broker = "--broker" in (getattr(info, "default", None), *(getattr(info, "param_decls", None) or ()))
        wanted = brokers if is_broker else _BY_METAVAR.get(getattr(info, "metavar", None) or "")
        if wanted is not None and info.autocompletion is None:
            info.autocompletion = wanted
