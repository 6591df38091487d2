"""The controller: its election, the metadata it writes, and the requests it sends to brokers."""
