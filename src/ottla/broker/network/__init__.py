"""Connections and requests.

`listeners` binds the addresses of a `socket_server`, which accepts `connection`s within its limits (`connection_rates`,
`request_memory`). A connection hands each frame to `dispatch`, which decodes it and calls the API's `handler` with its
collaborators and a `context`. Requests that cannot be answered yet wait in the `purgatory`. `inter_broker` sends requests to
other brokers.
"""
