"""`ottla pipeline`: `command`, `running` (flows and their progress), `template` (what `init` writes)."""
