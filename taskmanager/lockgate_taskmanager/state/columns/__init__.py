"""Columns of keyed state in memory, in numpy and Arrow: they grow, are folded in place and frozen without a copy."""
