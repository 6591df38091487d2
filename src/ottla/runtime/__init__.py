"""The ports on a real machine: event loop, sockets, files, clock, metadata stores; and a small HTTP server."""
