"""Transactions: which producer stands behind a transactional id, what its transaction touches, and how it ends.

`state` is the table of states, `transaction` the metadata of one id and how it may change, `markers` what is owed to the
partitions of a decided transaction, `shard` the requests.
"""
