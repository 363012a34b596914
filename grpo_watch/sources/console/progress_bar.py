"""Turns the text of tqdm's bars and TRL's table titles into step numbers."""

from __future__ import annotations

import re
from typing import NamedTuple

from grpo_watch.frameworks.framework_tables import frameworks

BAR = re.compile(
    rb"%(?:\|[^|\r\n]{0,2000}\|)? {0,20}(\d{1,12})/(\d{1,12})"
    rb" \[(\d[\d:]{0,20})<([\d:?]{1,20})(?:, ?[^\]\r\n]{0,300})?\]?"
)
"""``' 12%|█▎   | 12/100 [00:04<00:29,  3.05it/s]'`` from the percent sign on (tqdm 4).

A terminal that says it has no columns (a notebook's ``!``, a container's ``-t``) gets ``' 12% 12/100 [00:04<…]'``.
"""
METER = re.compile(rb"%(?=\|| {1,20}\d{1,12}/\d{1,12} \[\d)")
"""The percent sign of any bar."""
LABEL = re.compile(
    rb"(?:\x1b\[[\d;?]{0,10}[A-Za-z]|\[[\w :.-]{1,20}\]:?|\(\w{1,40} pid=\d{1,9}[^)]{0,60}\)|\s){0,99}"
    rb"("
    + b"|".join(re.escape(table.traces.bar.encode()) for table in frameworks().values() if table.traces.bar)
    + rb")?"
    rb"\s{0,9}\d{1,3}"
)
"""What may be before the percent sign of the training bar: a rank, colours, a framework's label."""
LONGEST_LABEL = 200
NESTED = b"\x1b[A"
"""tqdm moves up again after it drew a bar below another one."""
TITLE = re.compile(rb"\xe2\x94\x80 Step (\d{1,9}) \xe2\x94\x80")
"""The title of TRL's table of completions: ``──── Step 12 ────``."""


class ProgressBar(NamedTuple):
    """A bar without a label of its own, drawn at the outermost position; ``rest`` is where the text behind it begins.

    ``fresh``: drawn for the first time; ``named``: its label makes it the training bar.
    """

    step: int
    total: int
    fresh: bool
    named: bool
    rest: int


def percent_of_bar(data: bytes) -> int:
    """Where the percent sign of the first bar in a piece of text stands; -1 if there is no bar."""
    if b"%" not in data:
        return -1
    found = METER.search(data)
    return found.start() if found is not None else -1


def training_bar(data: bytes) -> tuple[ProgressBar | None, int]:
    """The training bar in a piece of text, if there is one, and the offset behind any bar (0: none at all)."""
    percent = percent_of_bar(data)
    if percent < 0 or (found := BAR.match(data, percent)) is None:
        return None, 0
    label = LABEL.fullmatch(data, max(0, percent - LONGEST_LABEL), percent) if percent <= LONGEST_LABEL else None
    end = found.end()
    if label is None or data.startswith(NESTED, end):
        return None, end
    fresh = found[4] == b"?" and found[3].strip(b"0:") == b""
    return ProgressBar(int(found[1]), int(found[2]), fresh, label[1] is not None, end), end


def title_step(data: bytes) -> int | None:
    """The step in the title of TRL's table of completions."""
    found = TITLE.search(data)
    return int(found[1]) if found is not None else None
