"""Tables of metrics, one row per step."""
