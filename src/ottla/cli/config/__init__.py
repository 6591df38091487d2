"""`ottla config`.

`command` holds describe, set and unset; `protocol_resource` handles the resources that librdkafka cannot name: all brokers,
and groups.
"""
