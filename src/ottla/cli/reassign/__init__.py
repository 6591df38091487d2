"""`ottla reassign`.

`command` holds its commands, `plan` reads, writes and proposes assignments (pure), `moves` sends the requests.
"""
