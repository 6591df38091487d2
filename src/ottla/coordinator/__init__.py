"""Coordinators: state machines whose changes are records of an internal topic.

`shard` is the contract between a coordinator and its host. `group/` coordinates consumer groups and keeps their offsets, in the
partitions of `__consumer_offsets`; `txn/` coordinates transactions, in those of `__transaction_state`. All of it is plain
synchronous Python: a request comes in with the present time, a `Decision` goes out; the host (`broker.shard_host`) appends,
replays, waits and answers.
"""
