"""Schemas of any registry with Confluent's REST API.

`place` finds the registry, `command` has the commands of `ottla schema`, `records` what produce and consume do with --schema.
"""
