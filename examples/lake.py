"""A topic written to Parquet files, and these files read into a topic again.

The directory is OTTLA_LAKE, by default `lake` beside this file. Each batch is written once.
"""

import os
from pathlib import Path

from ottla import pipelines as p

LAKE = os.environ.get("OTTLA_LAKE") or str(Path(__file__).parent / "lake")
SCHEMA = "id long, sensor string, value double"

events = p.source("events", p.json(SCHEMA), dead_letter="events.dlq")
stored = p.files(f"{LAKE}/events", SCHEMA, name="stored")

p.sql(events, to=p.table(f"{LAKE}/events"), name="to_lake", query="SELECT * FROM events")
p.sql(stored, to=p.sink("events_again", key="sensor"), name="from_lake", query="SELECT id, sensor, value FROM stored")
