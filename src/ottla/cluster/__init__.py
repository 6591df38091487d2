"""What the cluster is and how it may change: a core, without clock, socket or chance.

`settings` is the table of all settings; `properties` reads a server.properties. `image` is the immutable picture every broker
answers from; `znodes` are the paths and JSON of the metadata tree, the same in ZooKeeper and in the embedded store; `placement`
chooses the brokers of new partitions; `controller` turns requests into changes of the tree. Who writes those changes, and when,
is the business of `broker.controller_host`.
"""
