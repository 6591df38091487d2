"""Coordinators: state machines whose changes are records of an internal topic.

`shard` is the contract between a coordinator and its host. `group/` coordinates groups and stores their offsets in
`__consumer_offsets`; `txn/` coordinates transactions in `__transaction_state`. All of it is plain synchronous Python: a request
and the current time go in, a `Decision` comes out. The host (`broker.coordinators`) appends, replays, waits and answers.
"""
