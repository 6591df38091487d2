"""The controller: of a broker alone (`standalone_controller`) or of a cluster (`cluster_controller`), made of the same parts.

- `controller_state`: the term, the image, the lock that orders changes. `election` claims terms; it has `registration`
  register the broker first.
- `metadata_writer` writes changes to the metadata store and hands the image to a `Publisher`: applied locally, or sent to brokers
  as control requests (`controller_channels`).
- `topic_requests`, `partition_requests`, `broker_requests`, `producer_ids` and `standalone_configs` (or
  `cluster_configs`) answer requests; `controller_client` sends requests to brokers, and to the controller on another broker.
- `tree_watcher` reads what others write in the tree: broker registrations (`leader_elections`), `topic_znodes`,
  `topic_deletion`, `offline_replicas`, `admin_znodes`.
"""
