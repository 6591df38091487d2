"""The rules of one partition's copies: what a fetcher has been told, who is in sync, how far to truncate.

Plain synchronous Python: time and chance come in as arguments, decisions go out as values. The broker performs them.
"""
