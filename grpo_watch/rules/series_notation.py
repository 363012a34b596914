"""Turns promtool's series notation (``0x3 0.02+0.01x6 _x3 nan``) into samples.

``a`` is one sample; ``axn`` is a and n repetitions (n + 1 samples); ``a+bxn`` and ``a-bxn`` step by b, n times;
``_`` is a step at which the key is not logged and ``_xn`` are n of them; ``nan``, ``inf`` and ``-inf`` are logged as
such; ``null`` is logged without a value.
"""

from __future__ import annotations

import re
from enum import Enum
from typing import TypeAlias

from grpo_watch.errors import FilePlace, RuleError

MAX_SAMPLES = 100_000


class MissingValue(Enum):
    """The key is not in the row at all (``None`` is a key logged as null)."""

    MISSING = "_"


MISSING = MissingValue.MISSING
Sample: TypeAlias = "float | MissingValue | None"

_NUMBER = r"[0-9]+(?:\.[0-9]*)?(?:[eE][-+]?[0-9]+)?|\.[0-9]+(?:[eE][-+]?[0-9]+)?"
_TERM = re.compile(
    rf"(?P<start>[-+]?(?:{_NUMBER}|nan|inf)|null|_)(?:(?P<sign>[-+])(?P<step>{_NUMBER}))?(?:x(?P<times>[0-9]{{1,6}}))?\Z",
    re.IGNORECASE,
)


def parse_series(text: str, place: FilePlace | None = None) -> tuple[Sample, ...]:
    """The samples of a series, in order.

    Raises:
        RuleError: naming the term that can't be read, or more than 100,000 samples.
    """
    samples: list[Sample] = []
    for term in text.split():
        match = _TERM.match(term)
        if match is None:
            raise RuleError(f"{term!r} is not a series term", place, "e.g. 0.5  0x30  1-0.1x9  _x3  nan  null")
        times = int(match["times"] or 0)
        if len(samples) + times >= MAX_SAMPLES:
            raise RuleError(f"a series has at most {MAX_SAMPLES} samples", place)
        samples += _expanded(match, times, term, place)
    return tuple(samples)


def _expanded(match: re.Match[str], times: int, term: str, place: FilePlace | None) -> list[Sample]:
    start = match["start"].lower()
    if start in {"_", "null"}:
        if match["step"] is not None:
            raise RuleError(f"{term!r} steps from no number", place)
        if start == "_":
            return [MISSING] * (times if match["times"] else 1)
        return [None] * (times + 1)
    first = float(start)
    if match["step"] is None:
        return [first] * (times + 1)
    if match["times"] is None:
        raise RuleError(f"{term!r} does not say how often it steps", place, f"write {term}x5")
    step = float(match["sign"] + match["step"])
    return [first + index * step for index in range(times + 1)]
