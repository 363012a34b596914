"""Finds the frameworks' folders and what their modules contribute; no list has to name them."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

from grpo_watch import frameworks as package


def folders() -> list[Path]:
    """The folder of each framework, by name."""
    found = (path for root in package.__path__ for path in Path(root).iterdir() if (path / "keys.yaml").is_file())
    return sorted(found, key=lambda path: path.name)


def contributions(modules: str, attribute: str) -> Iterator[Any]:
    """``attribute`` of every module ``<folder>/<modules>.py``, by folder and module name; ``modules`` may be a glob."""
    for folder in folders():
        for path in sorted(folder.glob(f"{modules}.py")):
            yield getattr(import_module(f"{package.__name__}.{folder.name}.{path.stem}"), attribute)
