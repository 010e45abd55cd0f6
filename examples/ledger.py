"""A job without an end, to play with: made-up rows at a steady rate, as a Parquet ledger and as totals by partition.

    lockgate submit examples/ledger.py
    kill -9 "$(lockgate leader --json | jq .pid)"     # or a task manager, or ZooKeeper
    lockgate cancel ledger-... --wait

Every row (partition, sequence) is in the ledger once, however often the leader dies.
"""

from lockgate import Job, Restart, count, max_

job = Job(
    "ledger",
    parallelism=2,
    checkpoint_interval_ms=500,
    tolerable_failed_checkpoints=3,
    retained_checkpoints=3,
    retain_after_end=True,
    restart=Restart.exponential(initial_ms=50, max_ms=5_000),
)

rows = job.generate(rate=1000, partitions=4).uid("rows")
rows.write_parquet("ledger").uid("ledger")
totals = rows.key_by("partition").aggregate(rows_seen=count(), last=max_("sequence")).uid("totals")
totals.write_sql("sqlite:///ledger.db", "totals", key="partition").uid("totals-table")
job.submit()
