"""`ottla pipeline`.

`command` holds its commands, `running` runs flows and shows them, `template` is what `init` writes, `failures` explains errors.
"""
