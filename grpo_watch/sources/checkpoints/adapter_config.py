"""Turns PEFT's ``adapter_config.json`` into the few scalars that decide what an adapter's weights can prove."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from grpo_watch.engine.records import Scalar
from grpo_watch.errors import SourceError
from grpo_watch.sources.files.reading import open_regular

NAME = "adapter_config.json"
LIMIT = 4_000_000
"""Bytes; target modules written out for a large model are well below this."""
KEPT = ("peft_type", "r", "lora_alpha", "init_lora_weights", "use_rslora", "use_dora", "bias")
MODULES = ("target_modules", "modules_to_save")


def read_adapter_config(folder: Path, roots: Sequence[Path]) -> tuple[dict[str, Scalar], list[str]]:
    """Scalars of the adapter's configuration and what is wrong with it (one line each).

    ``target_modules`` and ``modules_to_save`` become one comma-separated text each. A folder without the file gives
    nothing: what can't be decided without it stays undecided.

    Raises:
        SourceError: it is refused: outside ``roots``, or no regular file.
    """
    try:
        raw = _read(folder / NAME, roots)
    except FileNotFoundError:
        return {}, []
    try:
        config: Any = json.loads(raw)
    except (ValueError, RecursionError):
        config = None
    if not isinstance(config, dict):
        return {}, [f"{NAME}: no JSON object; it was not written whole"]
    kept = {name: config[name] for name in KEPT if isinstance(config.get(name), (str, int, float, bool))}
    for name in MODULES:
        modules = config.get(name)
        if isinstance(modules, list):
            kept[name] = ",".join(sorted(str(module) for module in modules))[:1000]
        elif isinstance(modules, str):
            kept[name] = modules[:1000]
    return kept, []


def _read(path: Path, roots: Sequence[Path]) -> bytes:
    try:
        descriptor = open_regular(path, roots)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise SourceError(f"{path}: can't be read: {error.strerror or error}") from None
    try:
        return os.pread(descriptor, LIMIT, 0)
    finally:
        os.close(descriptor)
