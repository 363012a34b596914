"""Says how an optional package is installed beside this installation, where it is missing."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path

PARQUET = "pip install 'grpo-watch[parquet]'"
"""Names the setting that shows more where pyarrow is missing; ``install`` says how to get it here."""


def install(extra: str) -> str:
    """The command that adds an extra here: from a checkout, with uv's tools, with pipx, or with pip."""
    root = Path(__file__).resolve().parents[1]
    if (root / "pyproject.toml").is_file():
        return f"pip install -e '{root}[{extra}]'"
    prefix = Path(sys.prefix).as_posix()
    if "/uv/tools/" in prefix or "/uv/archive-" in prefix or "/.cache/uv/" in prefix:
        return f"uvx 'grpo-watch[{extra}]' …, or uv tool install 'grpo-watch[{extra}]'"
    if "/pipx/venvs/" in prefix:
        return f"pipx install --force 'grpo-watch[{extra}]'"
    return f"pip install 'grpo-watch[{extra}]'"


def without_parquet() -> str:
    """Why Parquet can't be read here, and what to do, in one line; empty where it can."""
    return "" if find_spec("pyarrow") is not None else f"Parquet is not read without pyarrow: {PARQUET}"
