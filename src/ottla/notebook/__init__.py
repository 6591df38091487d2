"""A cluster in a notebook: `ottla.connect()` gives a `Cluster` with topics, groups and pipelines.

`cluster` has these objects, `records` what a search returns, `html` the tables that notebooks show, with every value escaped.
pandas and pyarrow are imported when a method needs them. What is asked of the cluster goes through the same functions as the
commands of `ottla.cli`.
"""
