"""`ottla doctor`: `command`, `finding` (what is wrong, and what mends it), `case` (what the checks look at), one module for each
subject of checks (`reach`, `tls`, `software`, `replicas`, `machine`, `clock`, `stuck`), and `bundle` (all of it in a file,
without secrets)."""
