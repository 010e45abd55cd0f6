"""Pipelines to read and to run: `python -m examples` lists those that run and check themselves."""
