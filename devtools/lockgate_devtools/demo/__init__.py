"""`make demo`: a word count on a cluster whose leader is killed, compared with plain Spark word by word."""
