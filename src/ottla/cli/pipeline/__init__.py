"""`ottla pipeline`: `command`, `running` (flows and their progress), `published` (what runs tell the cluster), `template` (what
`init` writes)."""
