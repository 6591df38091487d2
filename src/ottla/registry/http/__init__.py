"""The registry's HTTP interface, on Starlette: Confluent's REST API (SR01 to SR03).

`app` takes a request from its path to its answer; `routes` is the table of endpoints, which are functions in `reads` and
`writes`; `call` is what an endpoint gets; `documents` are the answers; `media` chooses content types; `forwarding` hands writes
to the leader.
"""
