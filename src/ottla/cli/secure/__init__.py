"""`ottla secure`: certificates, the first user and settings of a secured cluster, in one command.

`files` writes settings; `command` is the command. The certificates come from `ottla.tls.authority`.
"""
