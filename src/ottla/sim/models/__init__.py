"""What must hold: models of what was written, histories of what clients did, and the checks of both.

log_files        the files of a log, read without the product's code, and what of them survives a crash
log_model        LogModel: what a log must hold, and the comparison of files and indexes with it
partition_model  PartitionModel: what clients know of a partition
keyed_model      KeyedModel: the same of a compacted one
group_model      GroupModel: what must hold of a group
history          what clients did and were told, and which anomalies it has
checkers         checks of producer state, compacted partitions and histories
acl_model        AclModel: what a principal may do at which time
cluster_rules    ClusterRules: what must hold of a cluster at every moment
"""
