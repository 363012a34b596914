"""AReaL: its keys by version, and its console format."""
