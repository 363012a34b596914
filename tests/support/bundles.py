"""Unpacks the bundled real runs (tests/runs) into a folder, as their jobs left them."""

from __future__ import annotations

import gzip
import json
import os
import shutil
from pathlib import Path
from typing import Any

RUNS = Path(__file__).parents[1] / "runs"
OWN_FILES = {"expected.json"}
RECORDED = 1_795_250_000.0
"""When the runs were recorded (Unix seconds); copies are given this time, which stall detection reads."""


def bundled_runs() -> list[str]:
    """Names of all bundled runs, sorted."""
    return sorted(path.name for path in RUNS.iterdir() if path.is_dir())


def labels() -> dict[str, dict[str, Any]]:
    """What is known of each bundled run (see tests/runs/README.md)."""
    found: dict[str, dict[str, Any]] = json.loads((RUNS / "labels.json").read_text(encoding="utf-8"))
    return found


def unpack(name: str, folder: Path) -> Path:
    """Copy a bundled run to ``folder / name``; ``*.gz`` are decompressed. Returns the run's folder."""
    target = folder / name
    for source in sorted((RUNS / name).rglob("*")):
        if source.is_dir() or source.name in OWN_FILES:
            continue
        copy = target / source.relative_to(RUNS / name)
        copy.parent.mkdir(parents=True, exist_ok=True)
        if source.suffix == ".gz":
            copy.with_suffix("").write_bytes(gzip.decompress(source.read_bytes()))
        else:
            shutil.copyfile(source, copy)
    for copy in target.rglob("*"):
        os.utime(copy, (RECORDED, RECORDED))
    return target


def labelled_set(folder: Path) -> Path:
    """Unpack every bundled run into ``folder`` beside a ``labels.json`` in the form that the scorer reads."""
    entries = [
        {
            "id": name,
            "entry": name,
            "label": label["label"],
            "must": label["must"],
            "may": label["may"],
            "fault_start_step": label.get("from_step"),
        }
        for name, label in labels().items()
    ]
    for name in labels():
        unpack(name, folder)
    (folder / "labels.json").write_text(json.dumps(entries), encoding="utf-8")
    return folder
