"""The async shell of a broker: sockets, tasks, and the order of start and stop.

`app` builds the parts, starts them in order and stops them in reverse; each part gets the collaborators it uses as constructor
arguments. The packages, each importing only those below it:

- `app`: the Broker. `monitoring`: its metrics listener. `cluster_member`: the parts that only a broker of a cluster has.
- `handlers`: one module per API.
- `coordinators`: groups and transactions. `controller`: the controller of the cluster.
- `replicas`: the logs of this broker, its leaders and followers, and the work on its data directories.
- `metadata`: what this broker knows of the cluster, and the metadata store.
- `network`: connections, dispatch, purgatory, requests to other brokers.
"""
