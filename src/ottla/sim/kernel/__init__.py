"""The virtual machine: loop, clock, disk, network, metadata store, processes, trace."""
