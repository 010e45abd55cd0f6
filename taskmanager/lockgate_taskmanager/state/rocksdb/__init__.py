"""What every store in RocksDB shares: the database, its copies at barriers, and how it is stored and filled again."""
