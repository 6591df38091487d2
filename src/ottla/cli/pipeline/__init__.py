"""`ottla pipeline`.

`command` holds its commands, `running` runs flows and shows their progress, `template` is what `init` writes.
"""
