"""Which records a request takes, as their reader may see them."""

from __future__ import annotations

from ottla.cli.formats import Incoming
from ottla.cli.selection import Selection
from ottla.console.records.documents import Showing


def reading_of(selection: Selection, showing: Showing) -> Showing | None:
    """What a scan reads records with before it selects; None if it need not look into them."""
    looks = selection.where is not None or selection.grep is not None
    return showing if looks and showing.decodes else None


def takes_seen(selection: Selection, showing: Showing, record: Incoming) -> bool:
    """Of a record that was taken: whether it still is without what is hidden. What is hidden must not be found either."""
    return not showing.masks.of(record.topic) or selection.takes(showing.seen(record).record)
