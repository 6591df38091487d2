"""A small Kafka client, for what brokers and tools say to each other: `pipeline` is sans-IO, `connection` puts it on a socket.

For producing and consuming, people and our own tools use confluent-kafka.
"""
