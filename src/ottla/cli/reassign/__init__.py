"""`ottla reassign`: `command`, `plan` (proposes assignments), `moves` (sends the requests)."""
