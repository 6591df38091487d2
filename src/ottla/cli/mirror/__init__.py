"""`ottla mirror`: topics of one cluster, continuously and exactly once, in another.

`command` (the command and its restarts), `mirror` (records and progress), `layout` (topics and settings), `offset_syncs` (source
offsets to target offsets), `groups` (committed offsets of groups), `origins` (loops), `acls`, `naming`.
"""
