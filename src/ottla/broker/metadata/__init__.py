"""What a broker knows of the cluster: the metadata tree, the metadata cache, dynamic configs and ACLs."""
