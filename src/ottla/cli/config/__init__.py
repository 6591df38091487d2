"""`ottla config`: `command`, and `protocol_resource` for the resources that librdkafka cannot name."""
