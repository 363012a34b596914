"""Turns users' YAML (``grpo-watch.yaml`` and rule packs) into checked, frozen values; errors name file and line."""
