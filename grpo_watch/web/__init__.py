"""The HTTP server; it only reads immutable snapshots."""
