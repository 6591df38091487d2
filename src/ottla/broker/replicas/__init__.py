"""The replicas on this broker: partitions, fetching from leaders, ISR changes, retention and compaction."""
