"""What Kafka says on the wire.

`messages` holds one module per API, `registry` finds them by key or name, `headers` puts a message into a frame and takes it out.
A message here is a plain value: this room decides nothing.
"""
