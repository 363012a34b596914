"""Bundled real runs, and the replayer that writes them again at an accelerated pace."""
