"""Writes labelled runs in other ways that alter nothing about the run: the rows and the findings must stay the same.

Usage: python -m benchmarks.alterations [FOLDER], FOLDER with labels.json (default: the bundled runs). A console is
given other line ends, prefixes of collectors, colours and lines of others; the rows of a run are written as JSON lines,
and these with other keys, numbers as text, more columns and later steps, as printed dictionaries, and as a table.
"""

from __future__ import annotations

import argparse
import csv
import io
import json
import math
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from benchmarks.score import NOW, REPORTED
from grpo_watch.catalogue import catalogue
from grpo_watch.cli.check import check_runs
from grpo_watch.engine.records import RawRow, Stream, Tick
from grpo_watch.engine.rule import Rule
from grpo_watch.pipeline.open_run import open_run
from grpo_watch.pipeline.pipeline import Pipeline
from grpo_watch.report.check_document import document
from grpo_watch.rules.packs import load_rules
from grpo_watch.sources.discovery.discover import ChannelContent, Discoverer
from grpo_watch.sources.files.decompress import is_packed
from tests.support.bundles import labelled_set

Row: TypeAlias = Mapping[str, Any]
FOREIGN = "GET /v1/models 200 in 3 ms from worker 7\n"
LATER = 1000
LARGEST = 4 << 20
"""Bytes of a console that is altered."""
LEAST = 3


class Answer(NamedTuple):
    """What `check` says: rows read, and the rules that fire."""

    rows: int
    rules: tuple[str, ...]


def each_line(text: str, change: Callable[[int, str], str]) -> str:
    """The text with each line changed; pieces between carriage returns stay together, as collectors keep them."""
    return "".join(f"{change(number, line)}\n" for number, line in enumerate(text.split("\n")) if line)


CONSOLES: Mapping[str, Callable[[str], str]] = {
    "CRLF": lambda text: text.replace("\r\n", "\n").replace("\n", "\r\n"),
    "kubectl times": lambda text: each_line(
        text, lambda n, line: f"2026-03-02T10:{n // 60 % 60:02}:{n % 60:02}.000000001Z {line}"
    ),
    "ray prefixes": lambda text: each_line(text, lambda _, line: f"\x1b[36m(Trainer pid=4617)\x1b[0m {line}"),
    "rank prefixes": lambda text: each_line(text, lambda _, line: f"[default0]:{line}"),
    "foreign lines": lambda text: each_line(
        text, lambda n, line: f"{line}\n{FOREIGN}".rstrip("\n") if n % 3 == 2 else line
    ),
    "colours": lambda text: each_line(text, lambda _, line: f"\x1b[32m{line}\x1b[0m"),
}
"""Alterations of a console, each against the console as it is."""


def _as_table(rows: Sequence[Row]) -> str:
    keys = list(dict.fromkeys(key for row in rows for key in row))
    text = io.StringIO()
    table = csv.DictWriter(text, keys, lineterminator="\n")
    table.writeheader()
    table.writerows(rows)
    return text.getvalue()


def _json_lines(rows: Sequence[Row]) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


def _prefixed(key: str) -> str:
    return key if key == "step" or key.startswith("train/") else f"train/{key}"


ROWS: Mapping[str, tuple[str, Callable[[Sequence[Row]], str]]] = {
    "keys reversed": ("metrics.jsonl", lambda rows: _json_lines([dict(reversed(row.items())) for row in rows])),
    "train/ before keys": (
        "metrics.jsonl",
        lambda rows: _json_lines([{_prefixed(k): v for k, v in row.items()} for row in rows]),
    ),
    "numbers as text": (
        "metrics.jsonl",
        lambda rows: _json_lines([{k: str(v) for k, v in row.items()} for row in rows]),
    ),
    "more columns": (
        "metrics.jsonl",
        lambda rows: _json_lines([{**row, "host": "n1", "gpu_temperature": 61.5} for row in rows]),
    ),
    "later steps": ("metrics.jsonl", lambda rows: _json_lines([{**row, "step": row["step"] + LATER} for row in rows])),
    "printed dictionaries": ("train.log", lambda rows: "".join(f"{row}\n" for row in rows)),
    "a table": ("metrics.csv", _as_table),
}
"""Ways to write rows, each against JSON lines."""


def answer(folder: Path, rules: Sequence[Rule]) -> Answer:
    """What `check` says of a folder."""
    runs = document(check_runs(Discoverer().discover(folder), rules, {}, Tick(NOW, live=False)))["runs"]
    found = {finding["rule"] for run in runs for finding in run["findings"] if finding["severity"] in REPORTED}
    return Answer(sum(run["rows"] for run in runs), tuple(sorted(found)))


def consoles(entry: Path) -> Iterator[str]:
    """The consoles of an entry's runs, as text."""
    for run in Discoverer().discover(entry):
        for channel in run.channels:
            if channel.what is ChannelContent.CONSOLE and channel.path.stat().st_size <= LARGEST:
                data = channel.path.read_bytes()
                if not is_packed(data[:8]) and channel.path.suffix != ".json":
                    yield data.decode("utf-8", "replace")


def train_rows(entry: Path, rules: Sequence[Rule]) -> list[Row]:
    """The rows of training of the entry's first run, from the channel that has most of them."""
    best: list[Row] = []
    for run in Discoverer().discover(entry)[:1]:
        for source in open_run(run, Pipeline("run", tuple(rules), catalogue())).sources:
            items = [*source.source.poll(None), *source.source.finish()]
            rows = [item for item in items if isinstance(item, RawRow) and item.stream in {None, Stream.TRAIN}]
            steps = [row.step for row in rows]
            if len(rows) > len(best) and None not in steps and steps == sorted(set(steps), key=lambda step: step or 0):
                best = [{"step": row.step, **{k: v for k, v in row.values.items() if v is not None}} for row in rows]
    return best


def written(folder: Path, name: str, text: str) -> Path:
    """A new folder with one file."""
    folder.mkdir(parents=True)
    folder.joinpath(name).write_text(text, encoding="utf-8", newline="")
    return folder


def compared(entry: Path, rules: Sequence[Rule], scratch: Path) -> Iterator[tuple[str, Answer, Answer]]:
    """Per alteration of an entry: its name, the answer without and with it."""
    for number, text in enumerate(consoles(entry)):
        plain = answer(written(scratch / f"{number}", "train.log", text), rules)
        for name, change in CONSOLES.items():
            if plain.rows:
                yield name, plain, answer(written(scratch / f"{number} {name}", "train.log", change(text)), rules)
    rows = train_rows(entry, rules)
    if len(rows) >= LEAST:
        plain = answer(written(scratch / "rows", "metrics.jsonl", _json_lines(rows)), rules)
        for name, (file, write) in ROWS.items():
            yield name, plain, answer(written(scratch / name, file, write(rows)), rules)


def main() -> int:
    """Print the share of equal answers and each difference; 1 if it is below 99 %."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", nargs="?", type=Path)
    given = parser.parse_args()
    rules, same, all_of = load_rules([]), Counter[str](), Counter[str]()
    with tempfile.TemporaryDirectory() as bundled:
        folder = given.folder or labelled_set(Path(bundled))
        for label in json.loads((folder / "labels.json").read_text(encoding="utf-8")):
            with tempfile.TemporaryDirectory() as scratch:
                for name, plain, other in compared(folder / label["entry"], rules, Path(scratch)):
                    all_of[name] += 1
                    same[name] += plain == other
                    if plain != other:
                        gone, new = set(plain.rules) - set(other.rules), set(other.rules) - set(plain.rules)
                        print(
                            f"{label['id']}: {name}: {plain.rows} rows, {other.rows} so written; "
                            f"lost {', '.join(sorted(gone)) or '-'}; new {', '.join(sorted(new)) or '-'}",
                            flush=True,
                        )
    for name, number in all_of.items():
        print(f"{name:22} {same[name]:4} of {number:4} the same")
    share = same.total() / max(1, all_of.total())
    print(f"{math.floor(1000 * share) / 10} % of {all_of.total()} answers the same")
    return int(share < 0.99)


if __name__ == "__main__":
    sys.exit(main())
