"""Leadership and small durable records.

`elector.Elector` takes part in the election, `retrieval.LeaderRetrieval` follows it, `records.JobRecords` keeps what
must survive a leader. `zookeeper` is the real thing and the only home of kazoo, `embedded` its in-memory twin.
"""
