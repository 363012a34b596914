"""tinker-cookbook: its keys by version, and its summaries of rollouts."""
