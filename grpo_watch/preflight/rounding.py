"""Turns a batch into the totals of other versions of its framework, which round the end of an epoch otherwise."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from grpo_watch.core.batch import MODERN, Counting, Style
from grpo_watch.preflight.arithmetic import Batch

_OLD = Counting.COMPLETIONS
SWIFT = (
    ("ms-swift from 3.6 on", MODERN),
    ("ms-swift 3.1 to 3.5 on transformers from 4.52 on", Style(_OLD, drop_last=True)),
    ("ms-swift 3.1 to 3.5 on transformers before 4.52", Style(_OLD, drop_last=True, floor=True)),
)
TRL = (
    ("TRL from 0.20 on", MODERN),
    ("TRL 0.15 to 0.19 on transformers from 4.52 on", Style(_OLD)),
    ("TRL 0.15 to 0.19 on transformers before 4.52", Style(_OLD, floor=True)),
)
"""How totals are rounded, as ``core.batch`` read it in the sources; 0.15's draws differ, its total does not."""


def other_totals(batch: Batch, total: int | None) -> Iterator[str]:
    """A sentence for each other way of rounding that gives another total; none where the total is set or unknown."""
    own = batch.style
    if total is None or batch.max_steps is not None or batch.prompts is None or own.counting is Counting.PROMPTS:
        return
    for versions, style in SWIFT if batch.framework == "ms-swift" else TRL:
        if style.counting is own.counting is Counting.WHOLE_BATCHES:
            continue  # the launch's own
        rounded = replace(style, drop_last=style.drop_last or own.drop_last)
        other = replace(batch, style=rounded).plan().max_steps
        if other is not None and other != total:
            yield f"versions round the end of an epoch differently: with {versions} the total is {other:,}"
