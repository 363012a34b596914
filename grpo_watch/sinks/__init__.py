"""Sinks deliver what the engine says."""
