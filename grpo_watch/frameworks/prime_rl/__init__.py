"""prime-rl: its keys by version, its console format and dumps."""
