"""Consumer groups and their offsets.

`shard` is the state of one partition of `__consumer_offsets`. It routes to `classic_group_protocol` (JoinGroup and SyncGroup) and
`consumer_group_protocol` (KIP-848); `migration` converts a live group from one to the other. `offset_store` has the committed
offsets. `group` has what both kinds of groups share.
"""
