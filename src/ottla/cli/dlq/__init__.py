"""`ottla dlq`: `command` (list, show, replay), `letters` (a dead letter and what it says of its origin), `choice` (which
letters), `progress` (which were replayed), `replay` (back to their topics, exactly once)."""
