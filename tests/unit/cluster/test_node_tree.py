"""The rules of the metadata tree: each transaction wholly or not at all."""

from __future__ import annotations

import copy

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.cluster.node_tree import NodeTree
from ottla.ports import Change, Check, Create, Delete, SetData, StoreError

PATHS = st.sampled_from(["/a", "/a/b", "/a/b/c", "/d", "/d/e", "/", "a"])
VERSIONS = st.sampled_from([-1, 0, 1])
CHANGES = st.one_of(
    st.builds(Create, PATHS, st.just(b"x"), st.booleans(), st.booleans()),
    st.builds(SetData, PATHS, st.just(b"y"), VERSIONS),
    st.builds(Delete, PATHS, VERSIONS),
    st.builds(Check, PATHS, VERSIONS),
)


@given(st.lists(st.lists(CHANGES, max_size=5), max_size=6))
def test_what_is_undone_leaves_no_trace(transactions: list[list[Change]]) -> None:
    tree = NodeTree()
    for changes in transactions:
        before = copy.deepcopy((tree.entries, tree.children, tree.zxid))
        transaction = tree.begin("me")
        try:
            for change in changes:
                transaction.apply(change)
        except StoreError:
            transaction.undo()
            assert (tree.entries, tree.children, tree.zxid) == before
        else:
            transaction.commit()
            assert tree.zxid == before[2] + bool(transaction.events)
            # The same tree, read back from its entries alone.
            assert NodeTree(tree.entries, tree.zxid).children == tree.children


def test_what_goes_with_a_session_goes_in_one_transaction_and_nothing_else() -> None:
    tree = NodeTree()
    for owner in ("me", "you"):
        transaction = tree.begin(owner)
        transaction.apply(Create(f"/{owner}", ephemeral=True))
        transaction.apply(Create(f"/{owner}-stays"))
        transaction.commit()
    removal = tree.removal_of("me")
    assert list(removal.kept_entries()) == [("/me", None), ("/", tree.entries["/"])]
    removal.commit()
    assert tree.names_below("/") == ["me-stays", "you", "you-stays"]
    assert tree.zxid == 3


def test_a_child_of_an_ephemeral_node_is_refused() -> None:
    tree = NodeTree()
    transaction = tree.begin("me")
    transaction.apply(Create("/a", ephemeral=True))
    with pytest.raises(StoreError, match="ephemeral"):
        transaction.apply(Create("/a/b"))
