"""Group and transaction coordinators: the shell around the shards of `ottla.coordinator`.

`group_coordinators` and `transaction_coordinators` are what handlers use. Each has a `shard_host`, which knows the shards of this
broker: `internal_topic` finds and creates the topic, `shard_loader` replays its partitions, `shard_writer` performs decisions,
`shard_commits` waits until they are committed, `shard_timers` holds timers, `reply` is one request's reply. What the two kinds
differ in, the host asks `group_shards` or `transaction_shards`.

Markers: `marker_delivery` takes them to all partitions of a transaction, through `marker_writer` on this broker and
`marker_sender` to others. `transaction_verifier` asks the coordinator whether a partition belongs to a transaction.
`transaction_timeouts` ends transactions that are open for too long. `new_producer_ids` has the ids that either needs.
"""
