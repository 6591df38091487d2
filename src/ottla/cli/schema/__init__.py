"""`ottla schema`: schemas of any registry with Confluent's REST API. `place` finds the registry, `command` has the commands."""
