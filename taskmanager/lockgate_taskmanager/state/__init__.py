"""Keyed state: folded on Arrow batches, frozen copy-on-write, stored by key group. Knows nothing of Spark.

    factory                      which home state gets
       |
    rows | join | windows        what is kept, each in memory and in a database
       |          |
       |      aggregates
       |          |
    rocksdb, heap                what all databases share, and all that is in memory
       |
    spec, format, columns        whose state it is, snapshot files, arrays

A `StateSpec` says whose state it is; of each kind the factory knows two classes, one in memory and one in a database:

    kind                in memory        in a database
    aggregates by key   KeyedState       AggregateDatabase
    panes of windows    PaneState    PaneDatabase
    sessions            SessionState     SessionDatabase
    rows by key         RowHeap          RowDatabase
    a side of a join    JoinHeap         JoinDatabase

Those in memory are each a `HeapStore`, those in a database a `DatabaseStore`: snapshots and restore stand there, once.
What windows and sessions are is known to PaneState and SessionState alone: their databases make one of the rows
that a batch or a firing needs.

Beside these: `store`, what every home can do; `about`, what a stored piece says of itself; `backend`, where snapshot
bytes go; `chains`, what a snapshot may build on; `event_clock` and `firing`, how far event time has come and what that
brings; `layout`, the columns that come in; `scratch`, folders for databases.
"""
