"""The state that survives a restart."""
