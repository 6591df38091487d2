"""`ottla find`: looks for records in topics.

`scan` reads partitions in chunks, in order of time; `bounds` are the offsets to read, `placing` knows where a key is; `command`
is the command.
"""
