"""`ottla find`: looks for records in topics.

`scan` reads partitions in chunks, in order of time; `placing` knows where a key is; `command` is the command.
"""
