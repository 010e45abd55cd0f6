"""A first job for a cluster in containers: it needs no input, and runs for ten seconds.

    lockgate submit examples/first_job.py --wait
    lockgate submit examples/first_job.py --wait -- FOLDER

It writes Parquet files into FOLDER, which task managers must be able to write. Without FOLDER that is a place that the
compose file and the Kubernetes manifests give them.
"""

import sys

from lockgate import Job

folder = sys.argv[1] if len(sys.argv) > 1 else "/var/lib/lockgate/results/first"

job = Job("first", parallelism=2)
rows = job.generate(rows=20_000, rate=2_000, partitions=2)
rows.sql("SELECT partition, sequence FROM input WHERE sequence % 10 = 0").write_parquet(folder)
job.submit()
