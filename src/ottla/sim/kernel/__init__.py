"""The virtual machines: time, disks, networks, processes, and the metadata store, all driven by one seed.

process        Process: what may die, and how nothing of the dead runs on
loop           SimLoop: an event loop in virtual time; the same seed gives the same order
inode          Inode, Directory, Journal: what of files and names survives a crash
disk           SimDisk: the disk of a machine, its faults and crashes
disk_view      DiskView, SimFile: `ports.Disk` for one process
network        SimNetwork: connections, delays, cuts; NetworkView: `ports.Network` for one process
transport      SimTransport: one end of a connection
metadata_tree  MetadataTree: ZooKeeper's rules in memory
machine        Machine: clock, random numbers, disk, workers and network of one computer, as ports
node           Node: one broker through its lives
trace          Trace: what happened, as lines and as one hash
"""
