"""Options for reading files written by `write_csv`."""

from __future__ import annotations

CSV_OPTIONS = {
    "header": "true",
    "escape": '"',
    "charToEscapeQuoteEscaping": '"',
    "multiLine": "true",
    "lineSep": "\n",
    "nullValue": "\\N",
}
"""Options for Spark's CSV reader, and for `read_csv`, with which every value is read back as it was written.

>>> spark.read.schema("word STRING, n BIGINT").options(**CSV_OPTIONS).csv("out")
>>> job.read_csv("out", schema="word STRING, n BIGINT", **CSV_OPTIONS)

Quotes in texts are doubled, newlines are unchanged, an empty text is `""` and NULL is an empty field: Spark
distinguishes these two if `nullValue` is a text that does not occur in the data.
"""
