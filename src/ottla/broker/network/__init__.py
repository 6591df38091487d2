"""Connections and requests.

`listeners` binds the addresses of a `socket_server`, which accepts `connection`s within its limits (`request_memory`). A
connection hands each frame to `dispatch`, which decodes it and calls the API's `handler` with its collaborators and a `context`.
`metering` holds requests against quotas, `measuring` measures them for metrics. Requests that cannot be answered yet wait in the
`purgatory`. `sasl_login`
takes the frames of a SASL listener until the client is authenticated (`sasl_listeners` builds it; `jwks`
has the keys of OAuth issuers). `inter_broker` sends requests
to other brokers.
"""
