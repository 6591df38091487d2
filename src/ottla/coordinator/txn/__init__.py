"""The transaction coordinator: the producer of each transactional id, the partitions of its transaction, and its end.

`transaction_metadata` is the state of one id and its transitions, `pending_markers` the markers of ended transactions, and
`shard` the requests.
"""
