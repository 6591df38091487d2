"""The graph of a pipeline in layers: each node behind all that feed it, few lines crossing. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final
from urllib.parse import quote

_SWEEPS: Final = 4
_PAGES: Final = {"topic": "/topics/", "dead_letter": "/dead-letters/"}

Link = tuple[str, str]
"""Two nodes by their keys, as `topic:orders` and `flow:clean`."""


def key_of(end: Mapping[str, Any], *, dead_letter: bool = False) -> str:
    """The key of a node. Topics of other clusters have the cluster's name before their own."""
    kind = "dead_letter" if dead_letter else end["kind"]
    return f"{kind}:{end['cluster'] + ': ' if end.get('cluster') else ''}{end['name']}"


def nodes_and_links(edges: Sequence[Mapping[str, Any]]) -> tuple[dict[str, dict[str, Any]], list[Link]]:
    """The nodes by key, and which feeds which, of the edges of a published plan."""
    letters = {(edge["to"].get("cluster"), edge["to"]["name"]) for edge in edges if edge.get("dead_letter")}
    nodes: dict[str, dict[str, Any]] = {}
    links: list[Link] = []
    for edge in edges:
        ends = []
        for end in (edge["from"], edge["to"]):
            is_letters = end["kind"] == "topic" and (end.get("cluster"), end["name"]) in letters
            key = key_of(end, dead_letter=is_letters)
            kind, _, name = key.partition(":")
            nodes.setdefault(key, {"kind": kind, "name": name, "cluster": end.get("cluster")})
            ends.append(key)
        links.append((ends[0], ends[1]))
    return nodes, list(dict.fromkeys(links))


def layers(nodes: Sequence[str], links: Sequence[Link]) -> list[list[str]]:
    """The nodes of each layer, in an order that keeps neighbours near. Links that close a circle do not count."""
    into: dict[str, list[str]] = {node: [] for node in nodes}
    for source, target in links:
        into[target].append(source)
    depth: dict[str, int] = {}

    def depth_of(node: str, on_the_way: frozenset[str]) -> int:
        if node not in depth:
            before = [depth_of(each, on_the_way | {node}) for each in into[node] if each not in on_the_way and each != node]
            depth[node] = 1 + max(before, default=-1)
        return depth[node]

    for node in nodes:
        depth_of(node, frozenset())
    found: list[list[str]] = [[] for _ in range(max(depth.values(), default=-1) + 1)]
    for node in nodes:
        found[depth[node]].append(node)
    neighbours: dict[str, list[str]] = {node: [] for node in nodes}
    for source, target in links:
        neighbours[source].append(target)
        neighbours[target].append(source)
    for _ in range(_SWEEPS):
        place = {node: at for layer in found for at, node in enumerate(layer)}
        for layer in found:
            layer.sort(key=lambda node: (_middle([place[each] for each in neighbours[node]], place[node]), place[node]))
    return found


def _middle(places: Sequence[int], own: int) -> float:
    return sum(places) / len(places) if places else own


def graph_document(
    edges: Sequence[Mapping[str, Any]], rates: Mapping[Link, float | None], lags: Mapping[Link, int | None]
) -> dict[str, Any]:
    nodes, links = nodes_and_links(edges)
    found = layers(list(nodes), links)
    placed = {
        key: {**nodes[key], "layer": layer, "row": row, "href": _href(nodes[key])}
        for layer, keys in enumerate(found)
        for row, key in enumerate(keys)
    }
    return {
        "layers": found,
        "nodes": placed,
        "edges": [
            {"from": source, "to": target, "rows_per_s": rates.get((source, target)), "lag": lags.get((source, target))}
            for source, target in links
        ],
    }


def _href(node: Mapping[str, Any]) -> str | None:
    """The page of a topic of this cluster."""
    page = _PAGES.get(node["kind"])
    return None if page is None or node["cluster"] is not None else page + quote(node["name"], safe="")
