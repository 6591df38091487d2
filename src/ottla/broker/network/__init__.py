"""Connections and requests: listeners, frames, dispatch, purgatory, and connections to other brokers."""
