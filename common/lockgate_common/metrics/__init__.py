"""Prometheus metrics: families, their samples, the page that a process serves. What is measured is in other rooms."""
