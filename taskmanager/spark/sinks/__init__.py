"""Sinks: hidden until the checkpoint that covers them is completed, then shown once."""
