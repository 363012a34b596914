"""Turns what a trainer prints of its training set and processes before the first step into settings.

What each number counts was read off logs whose total of steps is known. The dataset's rows are prompts: a GRPO trainer
repeats them in its sampler, not in the dataset.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from grpo_watch.engine.records import Setting
from grpo_watch.frameworks.line_reader import MarkKind, marks

PRINTED = "printed in the log"
EXAMPLES = re.compile(rb"\bNum examples = (\d[\d,]{0,20})\s*$")
"""transformers, before training and before each evaluation; behind the former follow the epochs."""
EPOCHS = re.compile(rb"\bNum Epochs = (\d[\d,]{0,25})\s*$")
ROWS = re.compile(rb"^\s{0,8}num_rows: (\d{1,15})\s*$")
ENDLESS = 1 << 31
"""Epochs from which on the dataset is a stream and its size made up from max_steps (transformers: ``sys.maxsize``)."""
WAIT = 5
"""Lines of other processes and features between the first and the last line of one print."""


class PrintedSizes:
    """Waits for the second half of a print over several lines; gives up after a few lines."""

    def __init__(self) -> None:
        self._rows: int | None = None
        self._left = 0

    @property
    def open(self) -> bool:
        """Whether more of a print is waited for."""
        return self._left > 0

    def begin(self, line: bytes) -> None:
        """Take the first line of a print, if it is one."""
        examples = EXAMPLES.search(line)
        if examples is not None or _begins_dataset(line):
            self._rows, self._left = (_whole(examples[1]) if examples is not None else None), WAIT

    def feed(self, line: bytes) -> dict[str, Setting] | None:
        """The settings of a print that is complete with this line; None otherwise."""
        self._left -= 1
        found = (ROWS if self._rows is None else EPOCHS).search(line)
        if found is None:
            return None
        number, rows = _whole(found[1]), self._rows
        self.drop()
        return _sized(number) if rows is None else _trained(rows, number)

    def drop(self) -> None:
        """Wait no longer."""
        self._rows, self._left = None, 0


def printed_sizes(line: bytes) -> Mapping[str, Setting] | None:
    """The settings of a line that is complete by itself: a banner, a number of processes."""
    for mark in marks(MarkKind.SIZES):
        if (found := mark.pattern.search(line)) is not None:
            return _trained(_whole(found[1]), _whole(found[2]))
    for mark in marks(MarkKind.PROCESSES):
        if (found := mark.pattern.search(line)) is not None and (count := int(found[1])):
            return {"world_size": Setting(count, PRINTED)}
    return None


def begins(line: bytes) -> bool:
    """Whether a print over several lines begins here."""
    return EXAMPLES.search(line) is not None or _begins_dataset(line)


def _begins_dataset(line: bytes) -> bool:
    return any(mark.pattern.search(line) is not None for mark in marks(MarkKind.DATASET))


def _trained(rows: int, epochs: int) -> dict[str, Setting] | None:
    return _sized(rows) if epochs < ENDLESS else None


def _sized(rows: int) -> dict[str, Setting] | None:
    return {"dataset_size": Setting(rows, PRINTED)} if rows else None


def _whole(digits: bytes) -> int:
    return int(digits.replace(b",", b""))
