"""Operators on Spark: the only package that imports pyspark. The entry point is `engine.SparkEngine`."""
