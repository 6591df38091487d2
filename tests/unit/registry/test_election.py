"""SR16: the bytes that registries tell each other, and whom they elect."""

from __future__ import annotations

from ottla.registry.election import (
    DUPLICATE_URLS,
    NO_ERROR,
    Identity,
    decode_assignment,
    decode_identity,
    elect,
)


def test_sr16_identity_and_assignment() -> None:
    one = Identity("h", 8081)
    assert one.encode() == b'{"version":1,"host":"h","port":8081,"master_eligibility":true,"scheme":"http"}'
    assert decode_identity(one.encode()) == one
    assignment = elect({"m": one})
    assert assignment.encode() == (
        b'{"version":1,"error":0,"master":"m","master_identity":'
        b'{"version":1,"host":"h","port":8081,"master_eligibility":true,"scheme":"http"}}'
    )
    assert decode_assignment(assignment.encode()) == assignment


def test_sr16_the_smallest_url_of_the_eligible_leads() -> None:
    a, b, c = Identity("a", 1, eligible=False), Identity("b", 2), Identity("c", 1)
    assert elect({"x": c, "y": b, "z": a}).leader == b
    assert elect({"z": a}).leader is None
    assert (elect({"x": b, "y": b}).error, elect({"x": b, "y": c}).error) == (DUPLICATE_URLS, NO_ERROR)


def test_sr16_what_is_no_registry_is_ignored() -> None:
    assert decode_identity(b"\x00\x01") is None
    assert decode_identity(b"[]") is None
    assert decode_assignment(b"") is None
    assert decode_assignment(b'{"version":1,"error":0}') == elect({})
