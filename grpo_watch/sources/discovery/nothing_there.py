"""Says of a place without any run what was looked at there, and what of a run is missing."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path

from grpo_watch.errors import SourceError
from grpo_watch.sources.discovery.row_files import ABOUT, ends_of, holds_log
from grpo_watch.sources.discovery.unread import scores_without_steps, unnamed_columns

NOTHING = "nothing there looks like a training log, a metrics file or a checkpoint"
LOOKED_AT = 2_000
"""Files that are counted; a folder of datasets may hold millions."""
SHOWN = 4
OPENED = 16
"""Files whose beginning is read."""
SETTINGS = frozenset({"args.json", "args.bin", "training_args.json", "training_args.bin", "wandb-metadata.json"})
YAML = (".yaml", ".yml")
IN_WANDB = re.compile(r"(?:offline-)?run-\d{8}_\d{6}-\w+")
WEIGHTS = re.compile(r".*\.(?:safetensors|bin|pt|pth|gguf)|.*\.index\.json")


def nothing_there(path: Path) -> str:
    """One line for a folder or a file in which no run was found."""
    try:
        files = [path] if path.is_file() else list(islice(_files(path), LOOKED_AT))
    except OSError as error:
        return f"can't be read: {error.strerror or error}"
    if not path.exists():
        return NOTHING
    if not files:
        return f"{NOTHING}: the folder holds no file"
    return f"{NOTHING}: looked at {_shown(files)}; {_missing(path, files)}"


def _files(folder: Path) -> Iterator[Path]:
    return (file for file in folder.rglob("*") if file.is_file() and not file.is_symlink())


def _shown(files: Sequence[Path]) -> str:
    names = sorted({file.name for file in files})
    more = f" and {len(files) - SHOWN} more" if len(files) > SHOWN else ""
    some = f"more than {LOOKED_AT - 1}" if len(files) >= LOOKED_AT else str(len(files))
    plural = "file" if len(files) == 1 else "files"
    return f"{some} {plural} ({', '.join(names[:SHOWN])}{more})"


def _missing(path: Path, files: Sequence[Path]) -> str:
    """What the files lack to be a run."""
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
    scored = next((f.name for f in files[:OPENED] if f.suffix == ".jsonl" and scores_without_steps(f)), None)
    what = f"{scored} holds a reward for each completion but no step, and " if scored else ""
    if about := next(filter(_shows_rows, files[:OPENED]), None):
        return f"{what}{about.name} shows rows of a training, which may be an example: name the file to have it checked"
    if named := next(filter(None, map(unnamed_columns, files[:OPENED])), ""):
        return what + named
    rows = "a log of rows is missing (logging.jsonl, trainer_state.json, a console log, event files, a .wandb file)"
    return what + rows


def _shows_rows(file: Path) -> bool:
    """Whether it is a document about a project in which a log was pasted."""
    if not file.name.lower().startswith(ABOUT):
        return False
    try:
        return holds_log("", ends_of(file, [file.parent])[0])
    except (OSError, SourceError):
        return False
