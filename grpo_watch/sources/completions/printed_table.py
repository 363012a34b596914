"""Reads the tables of completions that TRL prints to the console with ``log_completions``, line by line."""

from __future__ import annotations

import re
from collections.abc import Sequence

from grpo_watch.sources.completions.reduced_rows import CollectedRows
from grpo_watch.sources.completions.summarise import Grouping, digests, summaries
from grpo_watch.sources.excerpt_privacy import KeptTexts

TITLE = re.compile(rb"\xe2\x94\x80 Step (\d{1,9}) \xe2\x94\x80")
"""``──── Step 12 ────``, the upper edge of the panel that holds the table."""
EDGE = "\u2502"
HEAVY = "\u2503"
RULES = ("\u250f", "\u2521", "\u251c", "\u2514")
"""How the lines between cells begin; the last of them closes the table."""
BOTTOM = "\u2570"
PROMPT, COMPLETION = "Prompt", "Completion"
MOST_LINES = 200_000
LEAST_OF_GROUP = 2


class PrintedTables:
    """Gives a table when its panel ends, with its step. TRL 0.16 to 1.16 (``print_prompt_completions_sample``).

    TRL may print a sample of the batch: rows of one prompt are a group as far as they are shown, and a prompt that is
    shown once tells nothing. Scores are left out: they are rounded, and those of a part of a group. Texts are wrapped
    to the width of their column, equal ones alike.
    """

    def __init__(self) -> None:
        self._step: int | None = None
        self._begin()

    def _begin(self) -> None:
        self._columns: list[str] = []
        self._rows: list[list[str]] = []
        self._cells: list[list[str]] = []
        self._lines = 0

    @property
    def open(self) -> bool:
        """Whether a panel is open."""
        return self._step is not None

    def begins(self, data: bytes) -> bool:
        """Whether a panel opens in this line; a bar may stand before it."""
        if (found := TITLE.search(data)) is None:
            return False
        self._step = int(found[1])
        self._begin()
        return True

    def feed(self, data: bytes, *, examples: KeptTexts = KeptTexts.EXCERPT) -> tuple[int, Grouping] | None:
        """The step and the groups of the table that this line completes; None else."""
        line, self._lines = data.decode("utf-8", "replace").strip(), self._lines + 1
        if self._step is None or self._lines > MOST_LINES or not line.startswith((EDGE, BOTTOM)):
            self._step = None
            return None
        if line.startswith(BOTTOM):
            step, self._step = self._step, None
            grouping = self._grouping(examples=examples)
            return (step, grouping) if grouping is not None else None
        self._line(line[1:-1].strip())
        return None

    def _line(self, inner: str) -> None:
        if inner.startswith(HEAVY):
            names = [cell.strip() for cell in inner.strip(HEAVY).split(HEAVY)]
            self._columns = self._columns or names
        elif inner.startswith(RULES):
            self._close()
        elif inner.startswith(EDGE) and len(cells := inner[1:-1].split(EDGE)) == len(self._columns):
            self._cells.append([cell.strip() for cell in cells])

    def _close(self) -> None:
        """A rule ends the row above it: each cell is the lines that it was wrapped to."""
        if self._cells:
            self._rows.append(["\n".join(lines).strip() for lines in zip(*self._cells, strict=True)])
        self._cells = []

    def _grouping(self, *, examples: KeptTexts) -> Grouping | None:
        """The groups of the rows; None for a table of something else, or in which no prompt comes twice."""
        if self._columns[:2] != [PROMPT, COMPLETION] or not self._rows:
            return None
        rows = CollectedRows()
        rows.extend([row[0] for row in self._rows], [row[1] for row in self._rows])
        members = [places for places in _by_prompt(self._rows).values() if len(places) >= LEAST_OF_GROUP]
        if not members:
            return None
        prompts, digest = digests(rows)
        return Grouping(summaries(rows, members, {}, examples=examples), "", digest, prompts, by_prompt=True)


def _by_prompt(rows: Sequence[Sequence[str]]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for place, row in enumerate(rows):
        found.setdefault(row[0], []).append(place)
    return found
