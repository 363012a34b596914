"""Judges every labelled run by each of its channels alone: the same top finding where the channel carries the signal.

Usage: python -m benchmarks.channels [FOLDER] — FOLDER holds labels.json (default: the bundled runs).
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from benchmarks.score import REPORTED, RunLabel, read_label
from grpo_watch.cli.check import check_runs
from grpo_watch.engine.records import Tick
from grpo_watch.engine.rule import Rule
from grpo_watch.report.check_document import document
from grpo_watch.rules.packs import load_rules
from grpo_watch.sources.discovery.discover import ChannelContent, Discoverer, FoundChannel, discover
from grpo_watch.sources.settings.run_config import KINDS
from tests.support.bundles import labelled_set

NOW = 1_798_761_600.0
"""What "now" is: 2027-01-01, long after every run."""
CHANNELS: Mapping[str, frozenset[ChannelContent]] = {
    "log": frozenset({ChannelContent.CONSOLE}),
    "jsonl": frozenset({ChannelContent.JSONL, ChannelContent.TABLE}),
    "tfevents": frozenset({ChannelContent.TFEVENTS}),
    "wandb": frozenset({ChannelContent.WANDB_OFFLINE}),
    "trackio": frozenset({ChannelContent.TRACKIO}),
    "swanlab": frozenset({ChannelContent.SWANLAB}),
    "mlflow": frozenset({ChannelContent.MLFLOW}),
    "state": frozenset({ChannelContent.TRAINER_STATE}),
}
ALL = frozenset().union(*CHANNELS.values())


@dataclass(frozen=True, slots=True)
class Cell:
    """What one channel alone says: verdict, findings that no other explains, and why wanted rules can't see."""

    verdict: str
    top: tuple[str, ...] = ()
    reported: frozenset[str] = frozenset()
    blind: str = ""

    def holds(self, label: RunLabel) -> bool:
        """Whether this is what the label says: every wanted list hit, or nothing unfair on a healthy run."""
        if label.kind == "healthy":
            return self.reported <= label.may and self.verdict != "not-evaluable"
        return bool(label.must) and all(self.reported & wanted for wanted in label.must)

    def mark(self, label: RunLabel, whole: Cell) -> str:
        """``=`` as all channels say (or as the label does), ``-`` blind and reported so, ``!`` anything else."""
        if self.top == whole.top or self.holds(label):
            return "="
        quiet = self.reported <= whole.reported | label.may | label.wanted
        return "-" if self.blind and quiet else "!"


def copied(entry: Path, kinds: frozenset[ChannelContent], target: Path, *, config: bool) -> bool:
    """Copy an entry's files of these kinds (and its configuration) to the same places below ``target``."""
    found = False
    for run in discover(entry):
        for channel in run.channels:
            if channel.what in kinds:
                for file in _files(channel):
                    found = True
                    _copy(file, entry, target)
        if config and run.root.is_dir() and entry.is_dir():
            for file in run.root.rglob("*"):
                if any(fnmatch(file.name, pattern) for kind in KINDS for pattern in kind.patterns if not kind.tail):
                    _copy(file, entry, target)
    return found


def _files(channel: FoundChannel) -> Iterator[Path]:
    if channel.what is ChannelContent.TRAINER_STATE and channel.path.is_dir():
        yield from channel.path.glob("checkpoint-*/trainer_state.json")
    else:
        yield channel.path


def _copy(file: Path, entry: Path, target: Path) -> None:
    base = entry if entry.is_dir() else entry.parent
    if file.is_file():
        copy = target / base.name / file.relative_to(base)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(file, copy)


def judged(
    entry: Path, label: RunLabel, kinds: frozenset[ChannelContent], rules: Sequence[Rule], *, config: bool
) -> Cell | None:
    """What a copy with these channels only says; None where the run has none of them."""
    with tempfile.TemporaryDirectory() as folder:
        if not copied(entry, kinds, Path(folder), config=config):
            return None
        runs = Discoverer().discover(Path(folder))
        runs_found = document(check_runs(runs, rules, {}, Tick(NOW, live=False)))["runs"]
    return _cell(label, runs_found)


def _cell(label: RunLabel, runs: Sequence[Mapping[str, Any]]) -> Cell:
    if not runs:
        return Cell("nothing found")
    findings = [finding for run in runs for finding in run["findings"] if finding["severity"] in REPORTED]
    reasons = {rule["rule"]: rule["reason"] for run in runs for rule in run["rules"] if rule["status"] == "blind"}
    if not any(run["rows"] for run in runs) and not findings:
        return Cell("not-evaluable", blind="no row of metrics in it")
    blind = sorted({f"{rule}: {reasons[rule]}" for rule in label.wanted & reasons.keys()})
    return Cell(
        verdict=max((run["verdict"] for run in runs), key=_rank),
        top=tuple(sorted({finding["rule"] for finding in findings if finding["caused_by"] is None})[:3]),
        reported=frozenset(finding["rule"] for finding in findings),
        blind="; ".join(blind),
    )


def _rank(verdict: str) -> int:
    return ["not-evaluable", "healthy", "info", "warning", "critical"].index(verdict)


def rows(folder: Path, rules: Sequence[Rule]) -> Iterator[tuple[RunLabel, Cell, dict[str, Cell]]]:
    """Per labelled run: all its row channels together, then each alone without and with configuration."""
    for value in json.loads((folder / "labels.json").read_text(encoding="utf-8")):
        label = read_label(value)
        entry = folder / label.entry
        whole = judged(entry, label, ALL, rules, config=True)
        if whole is None:
            yield label, Cell("nothing found"), {}
            continue
        cells: dict[str, Cell] = {}
        for name, kinds in CHANNELS.items():
            for config in (False, True):
                cell = judged(entry, label, kinds, rules, config=config)
                if cell is not None:
                    cells[f"{name}+config" if config else name] = cell
        yield label, whole, cells


def main() -> int:
    """Print the matrix; 1 if a cell is wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", nargs="?", type=Path)
    parser.add_argument("--all", action="store_true", help="print every cell, not only those that differ")
    given = parser.parse_args()
    rules, marks = load_rules([]), Counter[tuple[str, str]]()
    with tempfile.TemporaryDirectory() as bundled:
        for label, whole, cells in rows(given.folder or labelled_set(Path(bundled)), rules):
            marked = {name: cell.mark(label, whole) for name, cell in cells.items()}
            marks.update((name, mark) for name, mark in marked.items())
            line = " ".join(f"{name}{mark}" for name, mark in marked.items())
            print(f"{label.name} [{label.kind}] {whole.verdict} {', '.join(whole.top) or 'quiet'}: {line or 'no rows'}")
            for name, cell in cells.items():
                if given.all or marked[name] != "=":
                    why = f" ({cell.blind})" if cell.blind else ""
                    print(
                        f"    {marked[name]} {name}: {cell.verdict} {', '.join(cell.top) or 'quiet'}{why}", flush=True
                    )
    for name in dict.fromkeys(name for name, _ in marks):
        print(f"{name:16} same {marks[name, '=']:3}  blind {marks[name, '-']:3}  wrong {marks[name, '!']:3}")
    return int(any(mark == "!" for _, mark in marks))


if __name__ == "__main__":
    sys.exit(main())
