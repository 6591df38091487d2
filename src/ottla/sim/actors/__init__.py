"""Clients of the simulated brokers: producers, readers, group members, administrators."""
