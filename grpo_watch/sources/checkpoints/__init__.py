"""Turns weights of checkpoints and probes into checksums."""
