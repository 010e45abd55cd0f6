"""Keyed state: folded on Arrow batches, frozen copy-on-write, stored by key group. Knows nothing of Spark.

    factory                      creates stores
       |
    query                        reads single keys of snapshots, without a store
       |
    rows | join | windows        the kinds of state, each in memory and in a database
       |          |
       |      aggregates
       |          |
    rocksdb, heap                the common parts of stores in databases and in memory
       |
    spec, format, columns        identity of state, snapshot files, arrays

A `StateSpec` identifies a state; for each kind the factory has two classes, one in memory and one in a database:

    kind                in memory        in a database
    aggregates by key   KeyedState       AggregateDatabase
    panes of windows    PaneState    PaneDatabase
    sessions            SessionState     SessionDatabase
    rows by key         RowHeap          RowDatabase
    a side of a join    JoinHeap         JoinDatabase

Those in memory extend `HeapStore`, those in a database `DatabaseStore`, which implement snapshots and restore. Only
PaneState and SessionState know what windows and sessions are: their databases load the rows that a batch or a firing
needs into one of these.

`parts` stands apart from these: the state of an author's object, in named parts that are not divided by key.

The other modules: `store`, the interface of all stores; `about`, the header of a stored piece; `backend`, the target of
snapshot bytes; `chains`, what a snapshot may build on; `event_clock` and `firing`, event time and the results due at
it; `layout`, the input columns; `scratch`, folders for databases.
"""
