"""Both are told the same: what Apache Kafka 4.3 answers about client quotas, Ottla answers too (QU07)."""

from __future__ import annotations

import pytest

from tests.compat.quotas.quota_talk import converse
from tests.kit.dialogues import Transcripts, both, check

pytestmark = pytest.mark.java

SEEDS = range(12)


@pytest.fixture(scope="module")
def transcripts() -> Transcripts:
    return both(converse, SEEDS)


@pytest.mark.parametrize("dialogue", ["mistakes", "filters", *map(str, SEEDS)])
def test_the_same_answers(transcripts: Transcripts, dialogue: str) -> None:
    check(transcripts, dialogue)
