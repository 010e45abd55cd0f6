"""Sinks: output is hidden until its checkpoint is completed, then made visible once."""
