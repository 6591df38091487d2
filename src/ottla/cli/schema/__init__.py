"""Schemas of any registry with Confluent's REST API.

`place` finds the registry, `command` has the commands of `ottla schema`, `text` how schemas are printed and
compared, `records` what produce and consume do with --schema.
"""
