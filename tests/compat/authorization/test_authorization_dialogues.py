"""Apache Kafka 3.9.2 (AclAuthorizer) and 4.3.0 (StandardAuthorizer) deny what Ottla denies, with the same codes."""

from __future__ import annotations

import difflib
from collections.abc import Iterator

import pytest

from tests.compat.authorization.authorization_dialogue import converse, secured, versions

pytestmark = pytest.mark.java

SEEDS = range(8)


@pytest.fixture(scope="module", params=["kafka-4.3.0", "kafka-3.9.2"])
def transcripts(request: pytest.FixtureRequest) -> Iterator[dict[str, dict[str, list[str]]]]:
    with secured(request.param) as kafka, secured("ottla") as ottla:
        theirs, ours = versions(kafka), versions(ottla)
        both = {
            api: (max(theirs[api][0], ours[api][0]), min(theirs[api][1], ours[api][1])) for api in theirs.keys() & ours.keys()
        }
        yield {name: converse(place, request.param, SEEDS, both) for name, place in (("kafka", kafka), ("ottla", ottla))}


@pytest.mark.parametrize("dialogue", ["no ACL", *(f"seed {seed}" for seed in SEEDS)])
def test_mx01_the_same_is_denied(transcripts: dict[str, dict[str, list[str]]], dialogue: str) -> None:
    ours, theirs = transcripts["ottla"][dialogue], transcripts["kafka"][dialogue]
    assert len(ours) > 30
    assert ours == theirs, "\n".join(difflib.unified_diff(theirs, ours, "kafka", "ottla", lineterm="", n=0))
