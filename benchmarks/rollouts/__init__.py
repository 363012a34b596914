"""Completions of a made-up run, read by us, by pandas and by polars."""
