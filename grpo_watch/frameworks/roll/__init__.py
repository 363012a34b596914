"""ROLL: its keys by version, and its dumps."""
