"""`ottla group`, and `ottla consume --group`.

`command` holds list, describe, members, delete and delete-offsets; `reset` holds reset-offsets. `plan` computes offsets (pure),
`offsets` sends the requests for committed offsets, `view` describes groups, `consume` reads as a member.
"""
