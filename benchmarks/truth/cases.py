"""The labelled runs: recorded ones of this repository, synthetic ones, public logs that can be fetched, your own."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.alterations import train_rows
from benchmarks.robustness import EVENT_KINDS, UNFED
from benchmarks.synthetic.runs import KINDS, SyntheticRun, faulty, healthy
from benchmarks.truth.tools import Row
from benchmarks.wild import rounds
from grpo_watch.engine.records import RawRow
from grpo_watch.rules.packs import load_rules
from tests.support.bundles import labelled_set


@dataclass(frozen=True, slots=True)
class Case:
    """A run whose label is ``healthy`` or not; ``must`` are the rules that name its fault, one of each list.

    ``entry`` is where it lies as its job left it (None: rows alone); ``rows`` are those of training in its own keys.
    """

    name: str
    origin: str
    healthy: bool
    rows: Sequence[Row]
    entry: Path | None = None
    must: tuple[frozenset[str], ...] = ()


def labelled(folder: Path, origin: str) -> Iterator[Case]:
    """The healthy and the faulty runs of a folder with a ``labels.json`` (form: tests/runs/README.md)."""
    labels: list[dict[str, Any]] = json.loads((folder / "labels.json").read_text("utf-8"))
    rules = load_rules([])
    for label in labels:
        entry = folder / label["entry"]
        if label["label"] in {"healthy", "faulty"} and entry.exists():
            must = tuple(frozenset(rules) for rules in label["must"])
            yield Case(label["id"], origin, label["label"] == "healthy", train_rows(entry, rules), entry, must)


def recorded(scratch: Path) -> Iterator[Case]:
    """The recorded runs of tests/runs."""
    return labelled(labelled_set(scratch / "recorded"), "recorded")


def synthetic(calm: int, per_kind: int) -> Iterator[Case]:
    """Healthy runs, and each kind of fault that rows can show."""
    for seed in range(calm):
        yield _made(f"healthy-{seed}", healthy(seed))
    for kind in KINDS:
        for seed in range(per_kind if kind not in EVENT_KINDS | UNFED else 0):
            yield _made(f"{kind}-{seed}", faulty(kind, seed))


def _made(name: str, run: SyntheticRun) -> Case:
    rows = [
        {"step": item.step, **{key: value for key, value in item.values.items() if value is not None}}
        for item in run.items
        if isinstance(item, RawRow)
    ]
    must = (frozenset(run.rules),) if run.rules else ()
    return Case(name, "synthetic", not run.rules, rows, None, must)


def public(scratch: Path, most: int) -> Iterator[Case]:
    """Public logs of benchmarks/wild, spread over its rounds; how many could not be had is printed."""
    logs = [log for log in rounds.logs() if log["commit"] and log["label"] in {"healthy", "faulty"}]
    chosen = logs[:: max(1, len(logs) // most)][:most] if most else []
    folder = scratch / "public"
    gone = rounds.fetch(folder, chosen)
    print(f"public logs: {len(chosen) - gone} of {len(chosen)} fetched, {gone} skipped", file=sys.stderr)
    return labelled(folder, "public")
