"""Counts the words of text files, exactly once, into an SQLite table.

    lockgate submit examples/wordcount.py --wait
    lockgate submit examples/wordcount.py --wait -- FOLDER

Without FOLDER it counts the words of Lockgate's own documentation.
"""

import sys
from pathlib import Path

from lockgate import Job, count

folder = Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parent.parent / "docs")

job = Job("wordcount", parallelism=2)
words = job.read_text(folder).sql(
    r"SELECT lower(word) AS word FROM (SELECT explode(split(value, '\\W+')) AS word FROM input) WHERE word != ''"
)
words.key_by("word").aggregate(n=count()).write_sql("sqlite:///wordcount.db", "counts", key="word")
job.submit()
