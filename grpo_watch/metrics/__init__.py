"""A snapshot as Prometheus metrics."""
