"""Users' YAML files (``grpo-watch.yaml`` and rule packs) become checked, frozen values; mistakes name file and line."""
