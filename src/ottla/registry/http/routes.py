"""The table of endpoints, and the way from a path to one of them.

A path is cut into segments before anything is decoded, so that `a%2Fb` is one segment (SR03). `/contexts/C` may stand before any
path.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final

from ottla.registry.errors import RegistryError
from ottla.registry.http import reads, writes
from ottla.registry.http.call import Call, decoded, not_found
from ottla.registry.subjects import context_name

Endpoint = Callable[[Call], Awaitable[object]]


class Needs(Enum):
    """What a client must be allowed to do with the subject (`rules`)."""

    NOTHING = auto()
    READ = auto()
    WRITE = auto()
    CONFIGURE = auto()


@dataclass(frozen=True, slots=True)
class Route:
    endpoint: Endpoint
    needs: Needs
    writes: bool = False
    first: Endpoint | None = None
    """Of a write: an answer that any registry can give. It raises NotLeading if it cannot."""


def _read(endpoint: Endpoint, needs: Needs = Needs.READ) -> Route:
    return Route(endpoint, needs)


def _write(endpoint: Endpoint, needs: Needs = Needs.WRITE, first: Endpoint | None = None) -> Route:
    return Route(endpoint, needs, writes=True, first=first)


ROUTES: Final[Mapping[str, Mapping[str, Route]]] = {
    "/": {"GET": _read(reads.root, Needs.NOTHING), "POST": _read(reads.root, Needs.NOTHING)},
    "/master_available": {"GET": _read(reads.leader_available, Needs.NOTHING)},
    "/contexts": {"GET": _read(reads.contexts)},
    "/schemas": {"GET": _read(reads.list_schemas)},
    "/schemas/types": {"GET": _read(reads.schema_types, Needs.NOTHING)},
    "/schemas/ids/{id}": {"GET": _read(reads.schema)},
    "/schemas/ids/{id}/schema": {"GET": _read(reads.schema_text)},
    "/schemas/ids/{id}/subjects": {"GET": _read(reads.subjects_of_id)},
    "/schemas/ids/{id}/versions": {"GET": _read(reads.versions_of_id)},
    "/schemas/guids/{guid}": {"GET": _read(reads.schema_by_guid)},
    "/schemas/guids/{guid}/ids": {"GET": _read(reads.ids_of_guid)},
    "/subjects": {"GET": _read(reads.list_subjects)},
    "/subjects/{subject}": {"POST": _read(reads.look_up), "DELETE": _write(writes.delete_subject)},
    "/subjects/{subject}/metadata": {"GET": _read(reads.latest_with_metadata)},
    "/subjects/{subject}/versions": {
        "GET": _read(reads.list_versions),
        "POST": _write(writes.register, first=writes.registered),
    },
    "/subjects/{subject}/versions/{version}": {"GET": _read(reads.version), "DELETE": _write(writes.delete_version)},
    "/subjects/{subject}/versions/{version}/schema": {"GET": _read(reads.version_text)},
    "/subjects/{subject}/versions/{version}/referencedby": {"GET": _read(reads.referenced_by)},
    "/compatibility/subjects/{subject}/versions": {"POST": _read(reads.test_subject)},
    "/compatibility/subjects/{subject}/versions/{version}": {"POST": _read(reads.test_version)},
    "/v1/metadata/id": {"GET": _read(reads.server_id, Needs.NOTHING)},
    "/v1/metadata/version": {"GET": _read(reads.server_version, Needs.NOTHING)},
    **{
        path: {
            "GET": _read(read),
            "PUT": _write(change, Needs.CONFIGURE),
            "DELETE": _write(remove, Needs.CONFIGURE),
        }
        for path, read, change, remove in (
            ("/config", reads.config, writes.set_config, writes.delete_config),
            ("/config/{subject}", reads.config, writes.set_config, writes.delete_config),
            ("/mode", reads.mode, writes.set_mode, writes.delete_mode),
            ("/mode/{subject}", reads.mode, writes.set_mode, writes.delete_mode),
        )
    },
}
_CONTEXT_ROUTES: Final[Mapping[str, Route]] = {
    "GET": _read(reads.root),
    "DELETE": _write(writes.delete_context, Needs.CONFIGURE),
}


class _Node:
    """What follows a segment: known segments, or one variable."""

    def __init__(self) -> None:
        self.known: dict[str, _Node] = {}
        self.variable: tuple[str, _Node] | None = None
        self.routes: Mapping[str, Route] = {}


def _tree() -> _Node:
    root = _Node()
    for path, routes in ROUTES.items():
        node = root
        for segment in path.strip("/").split("/") if path != "/" else ():
            if segment.startswith("{"):
                node.variable = node.variable or (segment[1:-1], _Node())
                node = node.variable[1]
            else:
                node = node.known.setdefault(segment, _Node())
        node.routes = routes
    return root


_TREE: Final = _tree()


@dataclass(frozen=True, slots=True)
class Match:
    route: Route
    segments: Mapping[str, str]
    context: str | None


def match(method: str, raw_path: bytes) -> Match:
    """The endpoint of a path as it came. RegistryError 404, 405."""
    pieces = raw_path.strip(b"/").split(b"/") if raw_path.strip(b"/") else []
    context = None
    if len(pieces) >= 2 and pieces[0] == b"contexts":
        context = context_name(decoded(pieces[1]))
        if ":" in context:
            raise RegistryError(400, f"Context name '{context}' cannot contain a colon")
        pieces = pieces[2:]
    node, segments = _TREE, {}
    for piece in pieces:
        text = decoded(piece)
        if text in node.known:
            node = node.known[text]
        elif node.variable is not None:
            name, node = node.variable
            segments[name] = text
        else:
            raise not_found()
    routes = _CONTEXT_ROUTES if context is not None and not pieces else node.routes
    if not routes:
        raise not_found()
    route = routes.get("GET" if method == "HEAD" else method)
    if route is None:
        raise RegistryError(405, "HTTP 405 Method Not Allowed")
    return Match(route, segments, context)
