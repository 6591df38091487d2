"""`ottla log`: `command` (dump), `segments` (reads and verifies the files of a partition)."""
