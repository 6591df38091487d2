"""The async shell of a broker: sockets, tasks, and the order of things.

`app` builds a broker and stops it in reverse. A request goes `connection` (frames in, replies in order) -> `dispatch` (header,
decode, table) -> `handlers/<api>` (one function per API) -> `partitions`/`partition` (logs and leadership) or the controller.
What cannot be answered yet waits in `purgatory`. `housekeeping` is everything that happens without a request.
"""
