"""The async shell of a broker: sockets, tasks, and the order of things.

`app` builds a broker and stops it in reverse. A request goes `connection` (frames in, replies in order) -> `dispatch` (header,
decode, table) -> `handlers/<api>` (one function per API) -> `partitions`/`partition` (logs and leadership) or the controller.
What cannot be answered yet waits in `purgatory`. `housekeeping` is everything that happens without a request; `cleaner` compacts,
`replica_moves` moves logs between directories.

Groups and transactions: `coordinators` hosts the shards of `coordinator` and delivers transaction markers.

Metadata: `controller_host` performs what `cluster.controller` decides, for a broker that is alone. In a cluster `office` writes
and tells (`controller_channels`), `tree_events` notices what others write, `cluster_host` is what is asked of it, `election` how
it came to it. On the other side `orders` are carried out, `metadata_cache` is what was told, `dynamic_configs` reads settings
from the tree, `replica_fetcher` follows leaders, `isr_changes` says who keeps up; `cluster_member` holds these together.
"""
