"""Which records a request takes, as their reader may see them."""

from __future__ import annotations

from ottla.cli.formats import Incoming
from ottla.cli.selection import Selection
from ottla.console.records.documents import Seen, Showing


def reading_of(selection: Selection, showing: Showing) -> Showing | None:
    """What a scan reads records with before it selects; None if it need not look into them."""
    looks = selection.where is not None or selection.grep is not None
    return showing if looks and showing.decodes else None


def takes_seen(selection: Selection, showing: Showing, record: Incoming) -> bool:
    """Of a record that was taken: whether it still is without what is hidden. What is hidden must not be found either."""
    return not showing.masks.of(record.topic) or takes_masked(selection, showing.seen(record))


def takes_masked(selection: Selection, seen: Seen) -> bool:
    """The same of a record without what is hidden. It had the key that is looked for."""
    return not (selection.key is not None and seen.key_masked) and selection.takes(seen.record)
