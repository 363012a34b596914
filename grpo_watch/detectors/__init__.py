"""The open catalogue: one disease per module, its runbook beside it. Nothing to register."""
