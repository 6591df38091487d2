"""What a mirror commits with its records, read back."""

from __future__ import annotations

import json

from ottla.cli.copying.transfer import Committed
from ottla.cli.mirror.progress import CREATED, WITHDRAWN, Progress


def test_progress_is_read_as_it_was_committed() -> None:
    progress = Progress(7, "source", "target", ("a", "b"), rank=CREATED)
    read = Progress.read(progress.committed())
    assert read is not None
    assert (read.next_offset, read.source_id, read.target_id, read.came_through, read.rank) == (
        7,
        "source",
        "target",
        ("a", "b"),
        2,
    )


def test_progress_without_a_rank_goes_on_with_the_weakest_claim() -> None:
    """A mirror that took it for none would copy every record again."""
    before = Progress(7, "source", "target", ("a",)).committed()
    document = json.loads(before.metadata)
    del document["rank"]
    read = Progress.read(Committed(7, json.dumps(document)))
    assert read is not None
    assert (read.next_offset, read.rank) == (7, 0)


def test_what_is_no_progress_is_none() -> None:
    assert [Progress.read(Committed(3, text)) for text in (WITHDRAWN.metadata, "x", "[]", '{"mirror": 2}')] == [None] * 4
