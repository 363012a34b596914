"""Seeded synthetic runs: the items of a healthy or a faulty training run, without a file (see docs/robustness.md)."""
