"""Leaves aside the tables of another training (supervised, before GRPO) that lie beside those of a run."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from grpo_watch.errors import SourceError
from grpo_watch.frameworks.guessing import guess
from grpo_watch.frameworks.row_numbers import STEPS
from grpo_watch.sources.discovery.grouping import FoundPart, RunDraft, job_name
from grpo_watch.sources.discovery.sniff import ChannelContent
from grpo_watch.sources.files.reading import real_path
from grpo_watch.sources.own_loops.html_metric_tables import TableParser
from grpo_watch.sources.rows.document import whole_text
from grpo_watch.sources.tables.table_rows import cells_of, delimiter_of, keys_of, row_of, table_lines
from grpo_watch.sources.tables.text_table import HTML, LOOKED_AT

OF_ANY = frozenset(
    {"loss", "eval_loss", "epoch", "grad_norm", "learning_rate", "mean_token_accuracy", "entropy", "num_tokens", *STEPS}
)
"""What a table of supervised fine-tuning shows."""
ROUNDING = 1e-3


@dataclass(slots=True)
class _Shown:
    """What a table shows: its metrics, whether one is a reward, and the loss by step."""

    keys: set[str] = field(default_factory=set)
    rewarded: bool = False
    losses: dict[int, float] = field(default_factory=dict)

    @property
    def supervised(self) -> bool:
        """Whether it is one of supervised fine-tuning by its columns."""
        return bool(self.losses) and self.keys <= OF_ANY

    def contradicts(self, other: _Shown) -> bool:
        """Whether both show a loss, and not the same one."""
        shared = self.losses.keys() & other.losses.keys()
        same = bool(shared) and all(_close(self.losses[step], other.losses[step]) for step in shared)
        return bool(other.losses) and not same


def _close(first: float, second: float) -> bool:
    return abs(first - second) <= ROUNDING * max(1.0, abs(first))


def without_others(draft: RunDraft, roots: Sequence[Path]) -> RunDraft:
    """The draft without tables that have a loss and no reward next to one that has both, and another loss.

    Each metric in a table of its own is left together, and so is a copy of a table. What a notebook's cell printed goes
    with its table. What is left aside is in the ``problem`` of a table that stays.
    """
    tables = [part for part in draft.parts if part.what is ChannelContent.TABLE and part.job is None]
    if len(tables) < 2:  # noqa: PLR2004 (a table next to another)
        return draft
    shown = {part: _shown(part.path, roots) for part in tables}
    rewarded = [part for part in tables if shown[part].rewarded]
    aside = [
        part
        for part in tables
        if shown[part].supervised and any(shown[part].contradicts(shown[other]) for other in rewarded)
    ]
    return _without(draft, aside, rewarded[0]) if aside else draft


def _without(draft: RunDraft, aside: Sequence[FoundPart], kept: FoundPart) -> RunDraft:
    jobs = {job_name(part.path.stem) for part in aside}
    gone = [
        *aside,
        *(part for part in draft.parts if part.what is ChannelContent.CONSOLE and job_name(part.path.name) in jobs),
    ]
    names = ", ".join(sorted(part.path.name for part in gone))
    problem = f"of another training, with a loss and no reward: {names} left aside"
    parts = [replace(part, problem=problem) if part is kept else part for part in draft.parts if part not in gone]
    return replace(draft, parts=parts)


def _shown(path: Path, roots: Sequence[Path]) -> _Shown:
    shown = _Shown()
    with suppress(OSError, SourceError):
        text = whole_text(path, (*roots, real_path(path).parent), LOOKED_AT)
        for header, lines in _tables(path, text or ""):
            keys = keys_of(header, {})
            shown.keys |= set(keys)
            shown.rewarded |= any(guess(key) == "reward_mean" for key in keys)
            _add_losses(shown.losses, keys, lines)
    return shown


def _add_losses(losses: dict[int, float], keys: Sequence[str], lines: Sequence[Sequence[str]]) -> None:
    for cells in lines:
        step, values, _ = row_of(keys, cells)
        if step is not None and (loss := values.get("loss")) is not None:
            losses[step] = loss


def _tables(path: Path, text: str) -> Sequence[tuple[Sequence[str], Sequence[Sequence[str]]]]:
    if path.name.endswith(HTML):
        parser = TableParser()
        parser.feed(text)
        return [(table.header, table.lines) for table in parser.tables]
    lines = table_lines(text)
    if not lines:
        return []
    delimiter = delimiter_of(lines[0])
    return [(cells_of(lines[0], delimiter), [cells_of(line, delimiter) for line in lines[1:]])]
