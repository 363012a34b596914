"""TRL: its keys by version, and its launch rules."""
