"""`ottla generate`: files for Prometheus, Grafana and systemd. Nothing here connects anywhere.

`kinds` says which files there are and what is in them. `scrape` and `recording_rules` write YAML, `dashboards` Grafana's JSON
from short descriptions. Alert rules and systemd units are files of their own, in `files`.
"""
