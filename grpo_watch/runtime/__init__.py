"""Drivers of the one pipeline: live and offline."""
