"""Leadership and small durable records.

`elector.Elector` takes part in the election, `retrieval.LeaderRetrieval` follows it, `records.JobRecords` keeps the
records that must survive a leader. `zookeeper` is the implementation over kazoo, and the only package that imports it;
`embedded` is its in-memory twin.
"""
