"""All tests; `python -m tests.mutation` and `python -m tests.simulation` are run from here."""
