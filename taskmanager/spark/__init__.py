"""Operators on Spark: the only home of pyspark. `engine.SparkEngine` is the way in."""
