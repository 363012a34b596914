"""OpenRLHF: its keys by version, and its launch rules."""
