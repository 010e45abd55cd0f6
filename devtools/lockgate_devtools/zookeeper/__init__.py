"""ZooKeeper servers on one machine, from the jars that come with PySpark."""
