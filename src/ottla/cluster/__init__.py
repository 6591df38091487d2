"""The rules of the cluster's metadata: pure functions without clock, socket or randomness.

`settings` is the table of all settings; `properties` reads a server.properties. `image` is the immutable metadata that every
broker answers from. `znodes` are the paths and JSON of the metadata tree, the same in ZooKeeper and in the embedded store.
`controller_term`, `broker_changes`, `elections` and `reassignment` change an image; `tree_changes` are the writes that follow,
`control_requests` what brokers are sent. `broker.controller` performs them.
"""
