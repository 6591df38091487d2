"""Names for completion in shells: topics, groups, brokers and profiles.

`names` asks the cluster that the command line so far would use, for at most 0.3 s; `cache` keeps the answer for 30 s. Nothing is
printed: without an answer there are no names. A parameter gets its names by its metavar.
"""
