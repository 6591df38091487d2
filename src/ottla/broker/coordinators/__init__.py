"""Hosts of the group and transaction coordinators: one shard for each partition of an internal topic."""
