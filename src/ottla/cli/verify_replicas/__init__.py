"""`ottla verify-replicas`: `command`, `reading` (fetches from every replica), `compare` (what differs). Read-only."""
