"""The tests. Workload helpers are in `tests.kit`."""
