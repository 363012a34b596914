"""Checks many runs in processes or on a Ray cluster, with results that survive an interruption."""
