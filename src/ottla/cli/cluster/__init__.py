"""`ottla cluster`.

`command` holds up and status; `processes` runs the brokers and the ZooKeeper that `up` starts, `zookeeper` finds its jars, `view`
describes any cluster from Metadata and ListOffsets.
"""
