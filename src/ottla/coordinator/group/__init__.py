"""Consumer groups and their offsets.

`shard` is the state of one partition of `__consumer_offsets` and routes to the kinds of groups: `classic` (the state machine of
JoinGroup and SyncGroup) and `consumer` (KIP-848); `migration` moves a live group between them. `offsets` keeps what groups have
committed. `group` has what all of them share: the configuration, the table of groups, and what every kind of group must answer.
"""
