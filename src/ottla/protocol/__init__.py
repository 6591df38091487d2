"""Kafka's messages.

`messages` has one module per API, `registry` finds them by key or name, `headers` puts a message into a frame and reads it from
one. `internal` has the records of Kafka's internal topics. A message is a plain value; nothing is decided here.
"""
