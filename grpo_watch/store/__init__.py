"""The daemon's state on disk, which survives a restart."""
