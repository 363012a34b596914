"""``grpo-watch digest``: checksums of one checkpoint's tensors, or which of them changed between two."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import Any

import msgspec

from grpo_watch.core.records import TensorDigest
from grpo_watch.errors import SourceError, TensorFileError, UsageError
from grpo_watch.sources.weights import Progress, Weights, digest_checkpoint, digest_weight_file

SAME, DIFFERENT, UNREADABLE = 0, 1, 3
"""Exit codes of the interface."""
SHOWN = 40
"""Names listed per kind of change in the text."""


@dataclass(frozen=True, slots=True)
class Problem:
    """Why a file can't be used, in one line."""

    file: str
    message: str


@dataclass(frozen=True, slots=True)
class Side:
    """One of the checkpoints as far as it could be read."""

    path: Path
    tensors: dict[str, TensorDigest]
    problems: list[Problem]


def digest_command(a: str | Path, b: str | Path | None, output_format: str, color: bool) -> int:
    """Print the digest of ``a``, or what differs between ``a`` and ``b``; returns the exit code.

    Each is a checkpoint folder (judged even without its framework's marker) or a ``.safetensors`` file.

    Raises:
        UsageError: a path does not exist.
    """
    paths = [Path(path) for path in (a, b) if path is not None]
    for path in paths:
        if not os.path.lexists(path):
            raise UsageError(f"{path}: no such file or folder")
    sides = [_read(path) for path in paths]
    told = document(*sides)
    if output_format == "json":
        sys.stdout.write(msgspec.json.format(msgspec.json.encode(told), indent=1).decode() + "\n")
    else:
        sys.stdout.write(_as_text(told, sides, color=color))
    return exit_code(told)


def document(first: Side, second: Side | None = None) -> dict[str, Any]:
    """The answer in the schema ``grpo-watch/digest/1``; ``tensors`` counts those of the (newer) checkpoint."""
    problems = [
        {"file": problem.file, "message": problem.message}
        for side in (first, second)
        if side is not None
        for problem in side.problems
    ]
    told: dict[str, Any] = {"schema": "grpo-watch/digest/1"}
    if second is None:
        checksums = {name: one.checksum for name, one in sorted(first.tensors.items())}
        return {**told, "tensors": len(checksums), "checksums": checksums, "problems": problems}
    both = sorted(first.tensors.keys() & second.tensors.keys())
    changed = [name for name in both if first.tensors[name] != second.tensors[name]]
    return {
        **told,
        "tensors": len(second.tensors),
        "changed": changed,
        "added": sorted(second.tensors.keys() - first.tensors.keys()),
        "removed": sorted(first.tensors.keys() - second.tensors.keys()),
        "unchanged": len(both) - len(changed),
        "problems": problems,
    }


def exit_code(told: dict[str, Any]) -> int:
    """3 where anything could not be read whole, else 1 where tensors differ, else 0."""
    if told["problems"]:
        return UNREADABLE
    return DIFFERENT if told.get("changed") or told.get("added") or told.get("removed") else SAME


def _read(path: Path) -> Side:
    with _progress(path) as progress:
        try:
            weights = _weights(path, progress)
        except (SourceError, TensorFileError) as error:
            return Side(path, {}, [_located(str(error), path)])
        except FileNotFoundError as error:
            return Side(
                path, {}, [Problem(str(error.filename or path), "does not exist, or vanished while it was read")]
            )
        except OSError as error:
            return Side(path, {}, [Problem(str(path), f"can't be read: {error.strerror or error}")])
    if weights is None:
        return Side(path, {}, [Problem(str(path), "holds no weight file (model or adapter_model, .safetensors)")])
    problems = [_located(text, path) for text in weights.problems]
    return Side(path, dict(weights.tensors), problems + [Problem(str(path), text) for text in _unusable(weights)])


def _located(text: str, path: Path) -> Problem:
    """A problem's text begins with the file's name, or its whole path."""
    name, _, message = text.partition(": ")
    return Problem(str(path / name) if path.is_dir() else str(path), message)


def _weights(path: Path, progress: Progress | None) -> Weights | None:
    """Links inside the named folder are followed within it; a named link itself leads where the user wants it to."""
    real = Path(os.path.realpath(path))
    if real.is_dir():
        return digest_checkpoint(real, (real,), progress)
    return digest_weight_file(real, (real.parent,), progress)


def _unusable(weights: Weights) -> Iterator[str]:
    for name, one in sorted(weights.tensors.items()):
        if not one.elements:
            yield f"{name}: has no elements {list(one.shape)} (ZeRO-3 saved without gathering)"
        elif one.nonfinite:
            yield f"{name}: {one.nonfinite} of {one.elements} elements are not finite"


@contextmanager
def _progress(path: Path) -> Iterator[Progress | None]:
    """A bar on standard error while a checkpoint is read; only on a terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich import progress as rich  # noqa: PLC0415  only for people
    from rich.console import Console  # noqa: PLC0415  only for people

    columns = (rich.BarColumn(), rich.DownloadColumn(), rich.TransferSpeedColumn(), rich.TimeRemainingColumn())
    with rich.Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(path.name, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def _as_text(told: dict[str, Any], sides: list[Side], *, color: bool) -> str:
    from rich.console import Console  # noqa: PLC0415  rich is not needed for JSON

    file = StringIO()
    console = Console(file=file, force_terminal=color, no_color=not color, width=10_000, highlight=False)
    if "checksums" in told:
        for name, one in sorted(sides[0].tensors.items()):
            shape = "×".join(map(str, one.shape)) or "scalar"
            zero = "  all zero" if one.zero else ""
            console.print(f"{one.checksum}  {one.dtype} {shape}  {_safe(name)}{zero}", markup=False, soft_wrap=True)
        console.print(f"{told['tensors']} tensors", markup=False)
    else:
        _compare(told, console)
    for problem in told["problems"]:
        console.print(f"problem: {_safe(problem['file'])}: {_safe(problem['message'])}", style="red", markup=False)
    return file.getvalue()


def _compare(told: dict[str, Any], console: Any) -> None:
    for kind, style in (("changed", "green"), ("added", "cyan"), ("removed", "yellow")):
        for name in told[kind][:SHOWN]:
            console.print(f"{kind:8} {_safe(name)}", style=style, markup=False)
        if len(told[kind]) > SHOWN:
            console.print(f"{kind:8} … and {len(told[kind]) - SHOWN} more (--format json lists all)", style=style)
    changed, unchanged = len(told["changed"]), told["unchanged"]
    verdict = f"{changed} of {changed + unchanged} tensors changed"
    if not changed and unchanged and not told["problems"]:
        verdict = f"all {unchanged} tensors are byte-identical"
    console.print(f"{verdict}; {len(told['added'])} added, {len(told['removed'])} removed", style="bold", markup=False)


def _safe(text: str) -> str:
    """Names come from a file: control characters must not reach the terminal."""
    return "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in text)
