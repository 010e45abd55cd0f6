"""How to read what `write_csv` writes."""

from __future__ import annotations

CSV_OPTIONS = {
    "header": "true",
    "escape": '"',
    "charToEscapeQuoteEscaping": '"',
    "multiLine": "true",
    "lineSep": "\n",
    "nullValue": "\\N",
}
"""Options of Spark's CSV reader, and of `read_csv`, with which every value comes back as it was written.

>>> spark.read.schema("word STRING, n BIGINT").options(**CSV_OPTIONS).csv("out")
>>> job.read_csv("out", schema="word STRING, n BIGINT", **CSV_OPTIONS)

Quotes in texts are doubled, newlines stay what they are, an empty text is `""` and NULL is nothing: with a `nullValue`
that is no text of yours, Spark tells these two apart.
"""
