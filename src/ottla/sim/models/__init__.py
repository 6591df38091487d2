"""What must hold: models of what was written, histories of what clients did, and the checks of both.

checkers         Violation, require; checks of files against a model, with readers of their own
partition_model  PartitionModel: what clients know of a partition
keyed_model      KeyedModel: the same of a compacted one
group_model      GroupModel: what must hold of a group
history          what clients did and were told, and which anomalies it has
cluster_rules    ClusterRules: what must hold of a cluster at every moment
"""
