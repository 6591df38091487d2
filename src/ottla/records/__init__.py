"""Record batches of format v2, which producers send, the log stores and consumers receive unchanged.

| module | contents |
|---|---|
| `batch` | the batch header |
| `walk`, `record` | loops over records; records as values |
| `validate` | checks what producers send |
| `compression`, `crc` | codecs with a limit on the decompressed size; CRC-32C |
| `own`, `control` | batches that the broker writes itself; transaction markers |
| `clean_batches`, `clean`, `clean_transactions`, `key_map`, `offset_set` | compaction |
| `columns`, `column_writer`, `partitioner` | records as Arrow columns; Java's default partitioner |

The modules are compiled by mypyc, and run uncompiled without a C compiler; `compiled()` tells which. Message formats v0 and v1
are refused.
"""

from __future__ import annotations


def compiled() -> bool:
    """Whether the modules are compiled."""
    from ottla.records import walk

    return not walk.__file__.endswith((".py", ".pyc"))
