"""Reads the YAML files that the package ships; files of others are read with ``plain_yaml``, which bounds them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

SAFE_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""The safe loader of libyaml where PyYAML was built with it (all its wheels are): ten times as fast."""


def shipped_yaml(file: Path | str) -> Any:
    """What a file, or its text, holds."""
    text = file.read_text(encoding="utf-8") if isinstance(file, Path) else file
    return yaml.load(text, Loader=SAFE_LOADER)  # noqa: S506  a safe one
