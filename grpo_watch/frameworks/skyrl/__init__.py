"""SkyRL: its keys by version, and its console format."""
