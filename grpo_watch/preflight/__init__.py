"""Batch arithmetic before launch."""
