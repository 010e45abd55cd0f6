"""The coordinator's shell: threads, sockets, files and ZooKeeper around the pure machines."""
