"""The real world behind the ports: event loop and sockets, files, clock, metadata stores."""
