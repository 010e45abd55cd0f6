"""Mutation proof: mechanisms switched off one at a time, in memory, and the tests that notice."""
