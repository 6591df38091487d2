"""`ottla txn`: `command` (its commands), `view` (transactions as coordinators and partition leaders describe them)."""
