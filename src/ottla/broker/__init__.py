"""The async shell of a broker: sockets, tasks, and the order of things.

`app` builds a broker and stops it in reverse. A request goes `connection` (frames in, replies in order) -> `dispatch` (header,
decode, table) -> `handlers/<api>` (one function per API) -> `partitions`/`partition` (logs and leadership) or the controller.
What cannot be answered yet waits in `purgatory`. `housekeeping` is everything that happens without a request; `cleaner` compacts,
`replica_moves` moves logs between directories.

Groups and transactions: `coordinators` hosts the shards of `coordinator` and delivers transaction markers.

Metadata: `controller` writes the cluster's metadata and tells the brokers of a cluster by control requests (`replicas` carries
them out). `metadata` is what this broker knows of the cluster: the image, dynamic configs, ACLs. `cluster_member` holds what only
a broker of a cluster has.
"""
