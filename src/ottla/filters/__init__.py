"""Filters of records: `value.amount > 100 and headers["x"] == "1"`, for the command line, notebooks and a console.

The language is an allow-listed subset of Python expressions (docs/filters.md). An expression is parsed, never run as code.

`filter` (`parse_filter`) is what others use. `parsing` makes a closure of each construct, over `values` (operations that yield
None where a field is missing, and never raise) and `functions` (the table of what can be called). `record` decodes a record when
an expression first asks for a part of it. `prefilter` says which bytes a record must have to match, so that a search skips most
records undecoded. `grep` looks for text (`literal`) or a regular expression (`regex`) in undecoded records. `times` reads ISO
times and durations; the present time is an argument. `errors` has the one error, which points at a place.

Invariants:
1. No input runs code, reads an attribute of a Python object, or raises anything but `FilterError`.
2. Time and memory of `Filter.matches` are bounded by the size of the expression times the size of the record.
3. `Filter.may_match` is true for every record that `Filter.matches`.
"""
