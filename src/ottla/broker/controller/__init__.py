"""The controller: of a broker alone (`standalone_controller`) or of a cluster (`cluster_controller`), made of the same parts.

- `controller_state`: the term, the image, the lock that orders changes. `election` registers the broker and claims terms.
- `metadata_writer` writes changes to the metadata store and hands the image to a `publisher`: applied locally, or sent to brokers
  as control requests (`control_request_sender`, `controller_channels`).
- `topic_requests`, `partition_requests`, `broker_requests`, `producer_ids` and `config_requests` (`standalone_configs` or
  `cluster_configs`) answer requests; `controller_client` asks the controller on another broker. `broker_client` sends requests to
  brokers.
- `tree_watcher` reads what others write in the tree: `broker_registrations`, `topic_znodes`, `topic_deletion`,
  `offline_replicas`, `admin_znodes`. `leader_balancer` moves leaderships to the preferred leaders.
"""
