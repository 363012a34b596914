"""Watches runs live: the registry of runs, their turns, and the threads of the service."""
