"""The records of Kafka's internal topics, as messages. Coordinators write and read them; they are never sent."""
