"""``grpo-watch digest``: checksums of one checkpoint's tensors, or which of them changed between two."""

from __future__ import annotations

import os
import sys
from argparse import Namespace
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from io import StringIO
from pathlib import Path
from typing import Any

from grpo_watch.cli.terminal import print_json
from grpo_watch.config.fields import bytes_per_second
from grpo_watch.detectors.shared.checkpoint_history import WHOLE_FILE, masks
from grpo_watch.engine.records import Scalar, TensorDigest
from grpo_watch.errors import SourceError, TensorFileError, UsageError
from grpo_watch.safe_text import visible
from grpo_watch.sources.checkpoints.comparison import NAMES, BesideBase, beside_base
from grpo_watch.sources.checkpoints.weights import (
    CheckpointWeights,
    DigestCache,
    Progress,
    WeightReading,
    digest_checkpoint,
    digest_weight_file,
)
from grpo_watch.sources.files.throttle import Throttle

SHOWN = 40
"""Names listed per kind of change, and problems."""


def as_text(answer: dict[str, Any], tensors: Mapping[str, TensorDigest], *, color: bool) -> str:
    """The digest of one checkpoint (``tensors``), or what differs between two."""
    from rich.console import Console  # noqa: PLC0415  rich is not needed for JSON

    file = StringIO()
    console = Console(file=file, force_terminal=color, no_color=not color, width=10_000, highlight=False)
    if "checksums" in answer:
        for name, one in sorted(tensors.items()):
            shape = "×".join(map(str, one.shape)) or "scalar"
            zero = "  all zero" if one.zero else ""
            file.write(f"{one.checksum}  {one.dtype} {shape}  {visible(name)}{zero}\n")  # rich takes 0.5 ms a line
        console.print(f"{answer['tensors']} tensors", markup=False)
        if "base" in answer:
            console.print(_beside_base(answer["base"]), markup=False)
    else:
        _compare(answer, console)
    apart = answer.get("ranks_apart", [])
    _capped(console, "red", [f"apart    {name}: ranks that must agree hold different bytes" for name in apart])
    _capped(console, "yellow", [f"note: {remark}" for remark in answer.get("remarks", [])])
    _capped(console, "red", [f"problem: {problem['file']}: {problem['message']}" for problem in answer["problems"]])
    return file.getvalue()


def _capped(console: Any, style: str, lines: list[str]) -> None:
    """The first of many lines; a model saved ungathered has a problem per tensor."""
    for line in lines[:SHOWN]:
        console.print(visible(line), style=style, markup=False)
    if len(lines) > SHOWN:
        console.print(f"… and {len(lines) - SHOWN} more (--format json lists all)", style=style, markup=False)


def _beside_base(base: Mapping[str, Any]) -> str:
    where = f"base model {visible(base['path'])}"
    if not base["changed"]:
        return f"{where}: all {base['tensors']} tensors are byte-identical: still the base model"
    return f"{where}: {base['changed']} of {base['tensors']} tensors changed"


def _compare(answer: dict[str, Any], console: Any) -> None:
    for kind, style in (("changed", "green"), ("added", "cyan"), ("removed", "yellow")):
        for name in answer[kind][:SHOWN]:
            console.print(f"{kind:8} {visible(name)}", style=style, markup=False)
        if len(answer[kind]) > SHOWN:
            console.print(f"{kind:8} … and {len(answer[kind]) - SHOWN} more (--format json lists all)", style=style)
    names = {"moments": "the optimizer's moments", "masters": "the optimizer's float32 copies of the weights"}
    for kind, state in answer.get("optimizer", {}).items():
        console.print(f"{names[kind]}: {state}", markup=False)
    changed, unchanged, whole = len(answer["changed"]), answer["unchanged"], answer.get("whole_files", 0)
    what = "files" if whole and whole == changed + unchanged else "tensors"
    verdict = f"{changed} of {changed + unchanged} {what} changed"
    if not changed and unchanged and not answer["problems"]:
        verdict = f"all {unchanged} {what} are byte-identical"
    elif what == "files":
        verdict += " (compared as whole files: proves nothing about the weights)"
    verdict += f"; {len(answer['added'])} added, {len(answer['removed'])} removed"
    console.print(verdict, style="bold", markup=False)


SAME, DIFFERENT, UNREADABLE = 0, 1, 3
"""Exit codes of the interface."""


@dataclass(frozen=True, slots=True)
class UnusableFile:
    """Why a file can't be used, in one line."""

    file: str
    message: str


@dataclass(frozen=True, slots=True)
class DigestSide:
    """One of the checkpoints as far as it could be read."""

    path: Path
    tensors: dict[str, TensorDigest]
    problems: list[UnusableFile]
    optimizer: Mapping[str, Scalar] = field(default_factory=dict)
    replicas: tuple[tuple[str, ...], ...] = ()
    base: BesideBase | None = None
    remarks: tuple[str, ...] = ()


def digest_command(given: Namespace) -> int:
    """Print the digest of one checkpoint, or what differs between two; returns the exit code.

    Each is a checkpoint folder (judged even without its framework's marker) or a weight file.

    Raises:
        UsageError: a path does not exist, or the limit is no rate.
    """
    throttle = Throttle(parse_rate(given.io_limit)) if given.io_limit else None
    cache = None if given.no_cache else DigestCache.of_user(os.environ)
    paths = [Path(path) for path in (given.first, given.second) if path is not None]
    sides = _sides(paths, WeightReading(threads=given.threads, throttle=throttle, cache=cache))
    answer = document(*sides)
    if given.format == "json":
        print_json(answer)
    else:
        sys.stdout.write(as_text(answer, sides[0].tensors, color=given.color))
    return exit_code(answer)


def compare_checkpoints(paths: Sequence[Path]) -> dict[str, Any]:
    """The document of one checkpoint, or of two.

    Raises:
        UsageError: a path does not exist.
    """
    return document(*_sides(paths, WeightReading(cache=DigestCache.of_user(os.environ))))


def _sides(paths: Sequence[Path], how: WeightReading) -> list[DigestSide]:
    for path in paths:
        if not os.path.lexists(path):
            raise UsageError(f"{path}: no such file or folder")
    return [_read(path, how, alone=len(paths) == 1) for path in paths]


def parse_rate(text: str) -> float:
    """Bytes per second of ``200MB``, ``1.5G`` or ``1000000``.

    Raises:
        UsageError: it is none.
    """
    try:
        return bytes_per_second(text)
    except ValueError:
        raise UsageError(f"--io-limit {text}: no rate; write bytes per second like 200MB") from None


def document(first: DigestSide, second: DigestSide | None = None) -> dict[str, Any]:
    """The answer in the schema ``grpo-watch/digest/1``; ``tensors`` counts those of the (newer) checkpoint."""
    problems = [
        {"file": problem.file, "message": problem.message}
        for side in (first, second)
        if side is not None
        for problem in side.problems
    ]
    answer: dict[str, Any] = {"schema": "grpo-watch/digest/1"}
    remarks = [text for side in (first, second) if side is not None for text in side.remarks]
    if remarks:
        answer["remarks"] = remarks
    apart = _ranks_apart(second or first)
    if apart:
        answer["ranks_apart"] = apart
    if second is None:
        checksums = {name: one.checksum for name, one in sorted(first.tensors.items())}
        if first.base is not None:
            base = first.base
            answer["base"] = {"path": str(base.folder), "tensors": base.shared, "changed": base.changed}
        return {**answer, "tensors": len(checksums), "checksums": checksums, "problems": problems}
    comparable = first.optimizer.keys() & second.optimizer.keys() & {"moments", "masters"}
    if comparable:
        kinds = sorted(comparable)
        answer["optimizer"] = {
            kind: "same" if first.optimizer[kind] == second.optimizer[kind] else "changed" for kind in kinds
        }
    both = sorted(first.tensors.keys() & second.tensors.keys())
    whole = sum(second.tensors[name].dtype == WHOLE_FILE for name in both)
    if whole:
        answer["whole_files"] = whole
    changed = [name for name in both if first.tensors[name] != second.tensors[name]]
    return {
        **answer,
        "tensors": len(second.tensors),
        "changed": changed,
        "added": sorted(second.tensors.keys() - first.tensors.keys()),
        "removed": sorted(first.tensors.keys() - second.tensors.keys()),
        "unchanged": len(both) - len(changed),
        "problems": problems,
    }


def _ranks_apart(side: DigestSide) -> list[str]:
    """First names of the groups that several ranks hold and that are not the same."""
    sums = {name: one.checksum for name, one in side.tensors.items()}
    return [group[0] for group in side.replicas if len({sums.get(name) for name in group}) > 1]


def exit_code(answer: dict[str, Any]) -> int:
    """3 where anything could not be read whole, else 1 where tensors differ (also between ranks), else 0."""
    if answer["problems"]:
        return UNREADABLE
    return DIFFERENT if any(answer.get(what) for what in ("changed", "added", "removed", "ranks_apart")) else SAME


def _read(path: Path, how: WeightReading, *, alone: bool) -> DigestSide:
    """``alone``: nothing else is compared with it, so its base model is."""
    base = None
    with _progress(path) as progress:
        try:
            weights = _weights(path, replace(how, progress=progress))
            if weights is not None and alone and path.is_dir():
                real = Path(os.path.realpath(path))
                base = beside_base(real, weights, _base_roots(real), how)
        except (SourceError, TensorFileError) as error:
            return DigestSide(path, {}, [_located(str(error), path)])
        except FileNotFoundError as error:
            return DigestSide(
                path, {}, [UnusableFile(str(error.filename or path), "does not exist, or disappeared while being read")]
            )
        except OSError as error:
            return DigestSide(path, {}, [UnusableFile(str(path), f"can't be read: {error.strerror or error}")])
    if weights is None:
        return DigestSide(
            path, {}, [UnusableFile(str(path), "contains no supported weight file (see docs/checkpoints.md)")]
        )
    problems = [_located(text, path) for text in weights.problems]
    problems += [UnusableFile(str(path), text) for text in _unusable(weights)]
    return DigestSide(path, dict(weights.tensors), problems, weights.optimizer, weights.replicas, base, weights.remarks)


def _base_roots(checkpoint: Path) -> tuple[Path, ...]:
    """Where a checkpoint's base model may lie: in its own run, and where the settings allow it."""
    if not any((checkpoint / name).exists() for name in NAMES):
        return ()
    from grpo_watch.config.settings import load_settings  # noqa: PLC0415  not needed for most checkpoints of a script

    return (checkpoint.parent, *load_settings().settings.allow_roots)


def _located(text: str, path: Path) -> UnusableFile:
    """A problem's text begins with the file's name, or its whole path."""
    name, _, message = text.partition(": ")
    return UnusableFile(str(path / name) if path.is_dir() else str(path), message)


def _weights(path: Path, how: WeightReading) -> CheckpointWeights | None:
    """Links inside the named folder are followed within it; a named link itself leads where the user wants it to."""
    real = Path(os.path.realpath(path))
    if real.is_dir():
        return digest_checkpoint(real, (real,), how)
    return digest_weight_file(real, (real.parent,), how)


def _unusable(weights: CheckpointWeights) -> Iterator[str]:
    for name, one in sorted(weights.tensors.items()):
        if not one.elements:
            yield f"{name}: no elements {list(one.shape)} (ZeRO-3 saved without gathering)"
        elif one.nonfinite and not masks(name):
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
