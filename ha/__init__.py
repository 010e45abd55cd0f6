"""Lockgate."""
