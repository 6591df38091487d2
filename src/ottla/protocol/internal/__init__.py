"""What Kafka keeps in its internal topics, as messages. Nobody sends these: coordinators write and read them."""
