"""The transaction coordinator: the producer of each transactional id, the partitions of its transaction, and its end.

`state` is the table of states, `transaction_metadata` the state of one id and its transitions, `pending_markers` the markers of
ended transactions, `shard` the requests.
"""
