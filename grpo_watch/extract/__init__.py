"""Texts and weights become small summaries."""
