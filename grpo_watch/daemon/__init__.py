"""The runs that are watched live: registry, turns, service."""
