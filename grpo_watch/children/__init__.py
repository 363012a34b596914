"""Processes that may be lost."""
