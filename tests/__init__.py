"""The tests. Shared helpers are in `tests.kit`."""
