"""Layers of a pipeline's graph."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from ottla.console.graph import graph_document, layers


def edge(source: str, target: str, *, dead_letter: bool = False) -> dict[str, Any]:
    ends = [dict(zip(("kind", "name"), end.split(":"), strict=True)) for end in (source, target)]
    return {"from": ends[0], "to": ends[1], "dead_letter": dead_letter}


def test_a_pipeline() -> None:
    edges = [
        edge("topic:orders", "flow:clean"),
        edge("flow:clean", "topic:cleaned"),
        edge("flow:clean", "topic:orders.dlq", dead_letter=True),
        edge("topic:cleaned", "flow:sum"),
        edge("topic:orders", "flow:sum"),
        edge("flow:sum", "table:sums"),
    ]
    found = graph_document(edges, {("topic:orders", "flow:clean"): 2.0}, {("topic:orders", "flow:clean"): 7})
    layer = {key: node["layer"] for key, node in found["nodes"].items()}
    assert layer == {
        "topic:orders": 0, "flow:clean": 1, "topic:cleaned": 2, "dead_letter:orders.dlq": 2, "flow:sum": 3, "table:sums": 4
    }  # fmt: skip
    assert found["edges"][0] == {"from": "topic:orders", "to": "flow:clean", "rows_per_s": 2.0, "lag": 7}
    assert found["nodes"]["dead_letter:orders.dlq"]["href"] == "/dead-letters/orders.dlq"
    assert found["nodes"]["flow:sum"]["href"] is None


def test_a_circle_is_drawn() -> None:
    found = layers(["a", "b", "c"], [("a", "b"), ("b", "c"), ("c", "a"), ("b", "b")])
    assert sorted(node for layer in found for node in layer) == ["a", "b", "c"]


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), max_size=30))
def test_each_node_is_behind_all_that_feed_it(pairs: list[tuple[int, int]]) -> None:
    links = [(str(a), str(b)) for a, b in pairs if a < b]
    nodes = sorted({end for link in links for end in link})
    found = layers(nodes, links)
    depth = {node: number for number, layer in enumerate(found) for node in layer}
    assert sorted(depth) == nodes
    assert all(depth[source] < depth[target] for source, target in links)
