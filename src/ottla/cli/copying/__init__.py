"""Records written exactly once: `command` (`ottla topic clone` and `topic copy`), `destination` (the other cluster), `transfer`
(records and the progress of their source in one transaction), `layout` (partitions and settings of a topic)."""
