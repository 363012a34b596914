"""``grpo-watch digest``: checksums of one checkpoint's tensors, or the differences between two checkpoints."""

from __future__ import annotations

import os
import sys
from argparse import Namespace
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from grpo_watch.cli.terminal import UNWRAPPED, print_json, printed, progress_line
from grpo_watch.detectors.shared.checkpoint_history import WHOLE_FILE, masks
from grpo_watch.engine.records import CheckpointKind, TensorDigest
from grpo_watch.errors import SourceError, TensorFileError, UsageError
from grpo_watch.report.lines import Line
from grpo_watch.safe_text import visible
from grpo_watch.sources.checkpoints.weights import (
    UNLIMITED,
    CheckpointWeights,
    ReadLimits,
    digest_checkpoint,
    digest_weight_file,
)

SHOWN = 40
"""Most names listed per kind of change, and most problems."""
SAME, DIFFERENT, UNREADABLE = 0, 1, 3
"""Exit codes of the command."""


@dataclass(frozen=True, slots=True)
class DigestSide:
    """The readable part of one checkpoint; each problem has a ``file`` and a one-line ``message``."""

    weights: CheckpointWeights
    problems: Sequence[Mapping[str, str]]


def digest_command(given: Namespace) -> int:
    """Print the digest of one checkpoint, or the differences of two; returns the exit code.

    Each is a checkpoint folder (judged even without its framework's marker) or a weight file.

    Raises:
        UsageError: a path does not exist.
    """
    sides = _sides([Path(path) for path in (given.first, given.second) if path is not None])
    answer = document(*sides)
    if given.format == "json":
        print_json(answer)
    else:
        sys.stdout.write(as_text(answer, sides[0].weights.tensors, color=given.color))
    return exit_code(answer)


def compare_checkpoints(paths: Sequence[Path]) -> dict[str, Any]:
    """The document of one checkpoint, or of two.

    Raises:
        UsageError: a path does not exist.
    """
    return document(*_sides(paths))


def document(*sides: DigestSide) -> dict[str, Any]:
    """The answer on one checkpoint or two (schema ``grpo-watch/digest/1``); ``tensors`` counts those of the newer."""
    first, second = sides[0].weights, sides[-1].weights
    problems = [problem for side in sides for problem in side.problems]
    answer: dict[str, Any] = {"schema": "grpo-watch/digest/1"}
    if remarks := [text for side in sides for text in side.weights.remarks]:
        answer["remarks"] = remarks
    sums = {name: one.checksum for name, one in sorted(second.tensors.items())}
    if apart := [group[0] for group in second.replicas if len({sums.get(name) for name in group}) > 1]:
        answer["ranks_apart"] = apart
    if len(sides) == 1:
        return {**answer, "tensors": len(sums), "checksums": sums, "problems": problems}
    if kinds := sorted(first.optimizer.keys() & second.optimizer.keys() & {"moments", "masters"}):
        same = {kind: first.optimizer[kind] == second.optimizer[kind] for kind in kinds}
        answer["optimizer"] = {kind: "same" if alike else "changed" for kind, alike in same.items()}
    both = sorted(first.tensors.keys() & second.tensors.keys())
    if whole := sum(second.tensors[name].dtype == WHOLE_FILE for name in both):
        answer["whole_files"] = whole
    changed = [name for name in both if first.tensors[name] != second.tensors[name]]
    return {
        **answer,
        "tensors": len(sums),
        "changed": changed,
        "added": sorted(second.tensors.keys() - first.tensors.keys()),
        "removed": sorted(first.tensors.keys() - second.tensors.keys()),
        "unchanged": len(both) - len(changed),
        "problems": problems,
    }


def exit_code(answer: dict[str, Any]) -> int:
    """3 if anything could not be read completely, else 1 if tensors differ (also between ranks), else 0."""
    if answer["problems"]:
        return UNREADABLE
    return DIFFERENT if any(answer.get(what) for what in ("changed", "added", "removed", "ranks_apart")) else SAME


def as_text(answer: dict[str, Any], tensors: Mapping[str, TensorDigest], *, color: bool) -> str:
    """The digest of one checkpoint (``tensors``), or the differences of two, as text."""
    lines = map(_tensor, sorted(tensors.items())) if "checksums" in answer else ()
    return "".join(lines) + printed(_lines(answer), color=color, width=UNWRAPPED)


def _tensor(named: tuple[str, TensorDigest]) -> str:
    name, one = named
    shape = "×".join(map(str, one.shape)) or "scalar"
    return f"{one.checksum}  {one.dtype} {shape}  {visible(name)}{'  all zero' if one.zero else ''}\n"


def _lines(answer: dict[str, Any]) -> Iterator[Line]:
    if "checksums" in answer:
        yield Line(f"{answer['tensors']} tensors")
    else:
        yield from _compare(answer)
    apart = answer.get("ranks_apart", [])
    yield from _capped("red", [f"apart    {name}: ranks that must agree hold different bytes" for name in apart])
    yield from _capped("yellow", [f"note: {remark}" for remark in answer.get("remarks", [])])
    yield from _capped("red", [f"problem: {problem['file']}: {problem['message']}" for problem in answer["problems"]])


def _capped(style: str, lines: list[str], kind: str = "") -> Iterator[Line]:
    """The first ``SHOWN`` lines; a model saved without gathering has one problem per tensor."""
    for line in lines[:SHOWN]:
        yield Line(f"{kind}{visible(line)}", style)
    if len(lines) > SHOWN:
        yield Line(f"{kind}… and {len(lines) - SHOWN} more (--format json lists all)", style)


def _compare(answer: dict[str, Any]) -> Iterator[Line]:
    for kind, style in (("changed", "green"), ("added", "cyan"), ("removed", "yellow")):
        yield from _capped(style, answer[kind], f"{kind:8} ")
    names = {"moments": "the optimizer's moments", "masters": "the optimizer's float32 copies of the weights"}
    for kind, state in answer.get("optimizer", {}).items():
        yield Line(f"{names[kind]}: {state}")
    changed, unchanged, whole = len(answer["changed"]), answer["unchanged"], answer.get("whole_files", 0)
    what = "files" if whole and whole == changed + unchanged else "tensors"
    verdict = f"{changed} of {changed + unchanged} {what} changed"
    if not changed and unchanged and not answer["problems"]:
        verdict = f"all {unchanged} {what} are byte-identical"
    elif what == "files":
        verdict += " (compared as whole files: proves nothing about the weights)"
    verdict += f"; {len(answer['added'])} added, {len(answer['removed'])} removed"
    yield Line(verdict, "bold")


def _sides(paths: Sequence[Path]) -> list[DigestSide]:
    for path in paths:
        if not os.path.lexists(path):
            raise UsageError(f"{path}: no such file or folder")
    return list(map(_read, paths))


def _read(path: Path) -> DigestSide:
    with progress_line(visible(path.name)) as draw:
        try:
            weights = _weights(path, replace(UNLIMITED, progress=_summed(draw)))
        except (SourceError, TensorFileError) as error:
            return _unread(_located(str(error), path))
        except FileNotFoundError as error:
            return _unread(_problem(error.filename or path, "does not exist, or disappeared while being read"))
        except OSError as error:
            return _unread(_problem(path, f"can't be read: {error.strerror or error}"))
    if weights is None:
        return _unread(_problem(path, "contains no supported weight file (see docs/checkpoints.md)"))
    problems = [_located(text, path) for text in weights.problems]
    return DigestSide(weights, [*problems, *(_problem(path, text) for text in _unusable(weights))])


def _summed(draw: Callable[[str], None] | None) -> Callable[[int], None] | None:
    """A callback that adds up bytes read and draws the sum; the total is unknown. None without ``draw``."""
    if draw is None:
        return None
    done = 0

    def read(count: int) -> None:
        nonlocal done
        done += count
        draw(f"{done // 1_000_000:,} MB read")

    return read


def _unread(problem: Mapping[str, str]) -> DigestSide:
    return DigestSide(CheckpointWeights(CheckpointKind.FULL, {}), [problem])


def _problem(file: Path | str, message: str) -> dict[str, str]:
    return {"file": str(file), "message": message}


def _located(text: str, path: Path) -> dict[str, str]:
    """A problem from a text that begins with the file's name or its whole path."""
    name, _, message = text.partition(": ")
    return _problem(path / name if path.is_dir() else path, message)


def _weights(path: Path, limits: ReadLimits) -> CheckpointWeights | None:
    """Digest a checkpoint folder or weight file; links inside it must stay inside, the path itself may be a link."""
    real = Path(os.path.realpath(path))
    if real.is_dir():
        return digest_checkpoint(real, (real,), limits)
    return digest_weight_file(real, (real.parent,), limits)


def _unusable(weights: CheckpointWeights) -> Iterator[str]:
    for name, one in sorted(weights.tensors.items()):
        if not one.elements:
            yield f"{name}: no elements {list(one.shape)} (ZeRO-3 saved without gathering)"
        elif one.nonfinite and not masks(name):
            yield f"{name}: {one.nonfinite} of {one.elements} elements are not finite"
