"""Explains why a place has no run: files inspected, missing parts, and settings that would read its rows."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import islice
from pathlib import Path

from grpo_watch import lazy_re as re
from grpo_watch.engine.records import RawRow
from grpo_watch.errors import SourceError
from grpo_watch.frameworks.guessing import guess
from grpo_watch.frameworks.row_numbers import flat, place
from grpo_watch.sources.console.collector_prefixes import Envelope
from grpo_watch.sources.console.source import ConsoleSource
from grpo_watch.sources.discovery.look import WalkedFolder
from grpo_watch.sources.discovery.sniff import (
    ABOUT,
    CONSOLE_NAME,
    UNREAD,
    SniffedFile,
    Sniffer,
    holds_log,
    lone_number,
)
from grpo_watch.sources.files.decompress import ARCHIVES, SUFFIXES, archive, beginning, ends_of
from grpo_watch.sources.rows.document import YAML
from grpo_watch.sources.rows.fields import fields_of
from grpo_watch.sources.rows.jsonl import JsonlSource, decode
from grpo_watch.sources.rows.layouts import is_number
from grpo_watch.sources.rows.own_lines import LONGEST
from grpo_watch.sources.rows.tables import HEADER_NEEDED, TABLES, TableSource, cells_of, delimiter_of, proposed

NOTHING = "nothing there looks like a training log, a metrics file or a checkpoint"
UNPARSED = "no metric row could be parsed; the first line that looks like one is "
HOW_ELSE = "log them under names that docs/frameworks/your-own.md lists"
COUNTED = 2_000
"""Most files that are counted; a folder of datasets may hold millions."""
MOST_NAMED, OPENED = 4, 16
"""Most files that are named, and whose beginning is read."""
SETTINGS = frozenset({"args.json", "args.bin", "training_args.json", "training_args.bin", "wandb-metadata.json"})
IN_WANDB = re.compile(r"(?:offline-)?run-\d{8}_\d{6}-\w+")
WEIGHTS = re.compile(r".*\.(?:safetensors|bin|pt|pth|gguf)|.*\.index\.json")
OF_TRAINING = re.compile(
    r"loss|reward|return|score|(?:^|[_/])kl|grad|entropy|learning_rate|(?:^|[_/])lr", re.IGNORECASE
)
SHOWN = 4
"""Numbers of a line that are shown."""
HEAD, FEW = 65_536, 3
"""Bytes and lines at the beginning that show a file's content."""
MOST_ROWS, MOST_SHOWN = 20, 12
KEPT = 100
"""Lines with different names that are remembered to find one that recurs."""
MOST_REPORTED, MOST_OPENED = 5, 50
"""Most files of a folder tree that are reported, and most files with a log's name that are opened."""
LOOKED_AT = 256 << 10
"""Bytes read at the beginning of each file."""
ZSTD, ZSTD_NAME = b"\x28\xb5\x2f\xfd", ".zst"
"""Zstandard's magic and suffix; Python reads it from version 3.14 on."""
PACKED = (ZSTD_NAME, *SUFFIXES)


def nothing_there(path: Path) -> str:
    """Return one line for a folder or a file without runs."""
    try:
        files = [path] if path.is_file() else list(islice(_files(path), COUNTED))
    except OSError as error:
        return f"can't be read: {error.strerror or error}"
    if not path.exists():
        return NOTHING
    if not files:
        return f"{NOTHING}: the folder holds no file"
    names = sorted({file.name for file in files})
    more = f" and {len(files) - MOST_NAMED} more" if len(files) > MOST_NAMED else ""
    some = f"more than {COUNTED - 1}" if len(files) >= COUNTED else str(len(files))
    plural = "file" if len(files) == 1 else "files"
    return f"{NOTHING}: looked at {some} {plural} ({', '.join(names[:MOST_NAMED])}{more}); {_missing(path, files)}"


def _files(folder: Path) -> Iterator[Path]:
    return (file for file in folder.rglob("*") if file.is_file() and not file.is_symlink())


def _missing(path: Path, files: Sequence[Path]) -> str:
    parts = {part for file in files for part in file.parts[-4:]}
    if "wandb" in {path.name, *parts} or any(map(IN_WANDB.fullmatch, parts)):
        return "of wandb's run the log itself (run-….wandb) and files/output.log are missing"
    names = {file.name for file in files}
    if all(name in SETTINGS or name.endswith(YAML) or ("config" in name and name.endswith(".json")) for name in names):
        return (
            "these are settings: the rows are missing (logging.jsonl, trainer_state.json, a console log, event files)"
        )
    if any(map(WEIGHTS.fullmatch, names)):
        return "these are weights: two checkpoint-<step> folders or a log of rows are missing"
    scored = next((f.name for f in files[:OPENED] if f.suffix == ".jsonl" and _scores_without_steps(f)), None)
    what = f"{scored} holds a reward for each completion but no step, and " if scored else ""
    if about := next(filter(_shows_rows, files[:OPENED]), None):
        return f"{what}{about.name} shows rows of a training, which may be an example: name the file to have it checked"
    if named := next(filter(None, map(_unnamed_columns, files[:OPENED])), ""):
        return what + named
    rows = "a log of rows is missing (logging.jsonl, trainer_state.json, a console log, event files, a .wandb file)"
    return what + rows


def _shows_rows(file: Path) -> bool:
    """Whether the file is a project's document with a pasted log."""
    with suppress(OSError, SourceError):
        return file.name.lower().startswith(ABOUT) and holds_log("", ends_of(file, [file.parent])[0])
    return False


def unread_row(path: Path, roots: Sequence[Path]) -> str:
    """Explain why a log gives no row, by the first line like a row whose names recur in a later line.

    Printed settings come only once. Only names and numbers are shown: other text may be a prompt or a completion.

    Raises:
        OSError, SourceError: it can't be read.
    """
    if path.name.endswith(ARCHIVES):
        return archive(path, roots)
    head = beginning(path, roots, LOOKED_AT)
    if head.startswith(ZSTD):
        return f"compressed; zstdcat {shlex.quote(str(path))} | grpo-watch check -"
    first: dict[tuple[str, ...], str] = {}
    for at, row in _printed_numbers(path, head):
        if not any(map(OF_TRAINING.search, row)):
            continue
        if path.suffix in TABLES:
            return HEADER_NEEDED
        names = tuple(row)[:SHOWN]
        if names in first:
            return UNPARSED + first[names] + (f"; {how}" if (how := _proposed(path)) else "")
        if len(first) < KEPT:
            first[names] = f"line {at}: " + ", ".join(f"{name}={row[name]}" for name in names)
    return ""


def _unnamed_columns(path: Path) -> str:
    """Return the numeric columns, keys or pairs of a file, and the settings that read them; empty without any."""
    names = list(_columns(path))[:MOST_SHOWN]
    if not names and (alone := _proposed(path)):
        return f"{path.name}: {alone}"
    shown = f"{path.name} has numbers under {', '.join(names)}, none of them known as a metric: "
    return shown + (_proposed(path) or HOW_ELSE) if names else ""


def _proposed(path: Path) -> str:
    """Return the tested settings that read a file's rows; empty if there are none.

    The step is the first column of rising whole numbers; the reward is the first other one that varies and is no other
    known metric.
    """
    columns = _columns(path)
    if not columns:
        return lone_number(path, ends_of(path, [path.parent])[0])
    rising = (key for key, v in columns.items() if all(n % 1 == 0 for n in v) and list(v) == sorted(set(v)))
    step = next(rising, None)
    others = (key for key, values in columns.items() if key != step and len(set(values)) > 1 and guess(key) is None)
    reward = next(others, None)
    if reward is None:
        return ""
    named = {"reward_mean": reward} if step is None else {"step": step, "reward_mean": reward}
    return proposed(path, named) if _reads(path, named) else ""


def _reads(path: Path, columns: Mapping[str, str]) -> bool:
    reader = JsonlSource if path.suffix == ".jsonl" else TableSource if path.suffix in TABLES else ConsoleSource
    source = reader(path.name, path, [path.parent], columns=columns)
    try:
        return any(isinstance(item, RawRow) for item in source.poll(0.0))
    finally:
        source.close()


def _columns(path: Path) -> Mapping[str, Sequence[float]]:
    """Return a file's numbers under names that all of its first rows have; empty if these rows are too few."""
    with suppress(OSError, SourceError):
        head = beginning(path, [path.parent], HEAD)
        rows = list(islice((row for _, row in _printed_numbers(path, head) if len(row) >= FEW), MOST_ROWS))
        whole = [key for key in rows[0] if all(key in row for row in rows)] if len(rows) >= FEW else []
        return {key: [float(row[key]) for row in rows] for key in whole} if len(whole) >= FEW else {}
    return {}


def _printed_numbers(path: Path, head: bytes) -> Iterator[tuple[int, Mapping[str, str]]]:
    """Yield line number (from 1) and printed numbers by name of each line with several: of tables, JSON, or pairs."""
    lines = head.split(b"\n")
    header = lines[0].decode("utf-8-sig", "replace") if lines and path.suffix in TABLES else ""
    names = [cell.strip() for cell in cells_of(header, delimiter_of(header))]
    envelope = Envelope()
    for at, line in enumerate(lines, 1):
        found: Mapping[str, object] = {}
        if header:
            found = dict(zip(names, cells_of(line.decode("utf-8", "replace"), delimiter_of(header)), strict=False))
        elif (row := decode(line)) is not None:
            found = flat(row)
        elif len(line) <= LONGEST:
            pieces = (piece.decode("utf-8", "replace") for piece in envelope.unwrap(line))
            found = {one.name: one.text for piece in pieces for one in fields_of(piece)}
        numbers = {key: str(value).strip() for key, value in found.items() if is_number(value)}
        if len(numbers) > 1:
            yield at, numbers


def _scores_without_steps(path: Path) -> bool:
    """Whether a JSON-lines file begins with rows that have a reward but no step: one row per completion."""
    with suppress(OSError, SourceError):
        rows = [decode(line) for line in beginning(path, [path.parent], HEAD).split(b"\n")[:FEW] if line]
        return bool(rows) and all(row is not None and "reward" in row and place(row).step is None for row in rows)
    return False


def leftovers(folder: WalkedFolder, roots: Sequence[Path], sniffer: Sniffer) -> list[str]:
    """Return files in a folder without runs that look like logs, and their faults.

    One line per file, five at most, by name; it shows only names and numbers.
    """
    names = islice(_log_names(folder), MOST_OPENED)
    looked = ((path, sniffer.remembered(path, UNREAD, partial(_refusal, path, roots)).problem) for path in names)
    return list(islice((f"{path}: {text}" for path, text in looked if text), MOST_REPORTED))


def _refusal(path: Path, roots: Sequence[Path]) -> SniffedFile:
    try:
        return SniffedFile(None, problem=unread_row(path, roots))
    except PermissionError:
        return SniffedFile(None, problem="can't be read: Permission denied")
    except (OSError, SourceError):
        return SniffedFile(None)


def _log_names(folder: WalkedFolder) -> Iterator[Path]:
    for path in folder.files:
        name = path.name.removesuffix(path.suffix) if path.suffix in PACKED else path.name
        if path.name.endswith(ARCHIVES) or name.endswith((".jsonl", ".csv", ".tsv")) or CONSOLE_NAME.fullmatch(name):
            yield path
    for child in folder.folders:
        yield from _log_names(child)
