"""Record batches, format v2: what producers send, what the log keeps, what consumers get, byte for byte.

`batch` reads and stamps headers, `walk` holds the loops over records, `record` reads and builds records as values, `validate`
decides what may be stored, `compression` packs and unpacks with a bound, `control` writes transaction markers, `own` what the
broker itself has to say. `clean_batches` compacts, with `clean` for each record, `clean_transactions` for aborted ones, `key_map`
and `offset_set` for what was seen. `columns` and `column_writer` are records as Arrow has them, `partitioner` is Java's choice
for a key.

All of these are compiled by mypyc in a normal install and run from the same sources where there is no C compiler; `compiled()`
says which. Messages of the formats v0 and v1 are refused.
"""

from __future__ import annotations


def compiled() -> bool:
    """Whether the loops over records run as machine code."""
    from ottla.records import walk

    return not walk.__file__.endswith((".py", ".pyc"))
