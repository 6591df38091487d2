"""The replication rules of one partition: ISR and high watermark, truncation, fetch sessions.

Synchronous and without I/O: time is an argument, a decision is a return value, and the broker performs it.
"""
