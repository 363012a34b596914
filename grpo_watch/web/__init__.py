"""The HTTP side; reads immutable snapshots only."""
