"""Reads dumps of completions and reduces texts to small summaries."""
