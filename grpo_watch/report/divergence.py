"""Finds where two columns of numbers over the same steps part, and the noise that decided it.

The rule: two runs have parted where the median difference of ten consecutive common rows is more than three times the
noise, and the step is the first of those rows that lies that far off to the same side. The noise is what the
difference changes by from one common row to the next, over all common rows before (for the first ten: over
themselves), as a standard deviation (1.4826 × median of the sizes of the changes / √2). So a drift is no noise, two
runs that were equal so far part at the first lasting difference, and a single odd row parts nothing.
"""

from __future__ import annotations

from bisect import insort
from dataclasses import dataclass

import numpy as np

from grpo_watch.report.series import Floats, Integers

WINDOW = 10
"""Rows whose median counts; a median of ten independent rows scatters by 0.4 of their noise."""
FEWEST = 5
"""Common rows below which there is no verdict; with fewer than ten, all of them are the window."""
TIMES = 3.0
"""Noises that a difference must exceed; seven standard errors of the median of ten independent rows."""
MAD = 1.4826
"""Median absolute deviation → standard deviation, of normal noise."""
MEAN_SIZE = 1.2533
"""Mean absolute deviation → standard deviation, of normal noise: √(π/2)."""
LEAST = 1e-6
"""Differences below this share of the values are arithmetic: float32 keeps seven digits."""


@dataclass(frozen=True, slots=True)
class StepColumn:
    """One metric of a run: ascending optimizer steps and as many values (NaN: no value)."""

    steps: Integers
    values: Floats


@dataclass(frozen=True, slots=True)
class Parting:
    """Where two columns part; steps are optimizer steps, None where they do not.

    ``differs`` is the first step with different values at all; ``step`` the first that noise does not explain, with the
    values ``a`` and ``b`` there and the ``noise`` (a standard deviation) it was judged by.
    """

    rows: int
    differs: int | None
    step: int | None = None
    a: float | None = None
    b: float | None = None
    noise: float | None = None


def part(a: StepColumn, b: StepColumn, resolution: float = 0.0, *, exact: bool = False) -> Parting:
    """Compare two columns; ``resolution`` is the coarser printed digit.

    ``exact`` is for what is set and not measured (a learning rate): there is no noise, any difference counts.
    """
    steps, of_a, of_b = np.intersect1d(a.steps, b.steps, return_indices=True)
    left, right = a.values[of_a], b.values[of_b]
    both = ~(np.isnan(left) | np.isnan(right))
    steps, left, right = steps[both], left[both], right[both]
    difference = right - left
    floor = np.maximum(resolution, LEAST * np.maximum(np.abs(left), np.abs(right)))
    unequal = np.flatnonzero(np.abs(difference) > floor)
    differs = int(steps[unequal[0]]) if len(unequal) else None
    window = min(WINDOW, len(steps))
    if differs is None or window < FEWEST:
        return Parting(len(steps), differs)
    noise = np.zeros(len(steps)) if exact else noise_before(difference, window)
    found = _first(difference, np.maximum(floor, TIMES * noise), window)
    if found is None:
        return Parting(len(steps), differs)
    begin, at = found
    return Parting(len(steps), differs, int(steps[at]), float(left[at]), float(right[at]), float(noise[begin]))


def noise_before(difference: Floats, window: int) -> Floats:
    """The noise by which each window of rows is judged, at the row that it begins with."""
    sizes = np.abs(np.diff(difference))
    spread = MAD * _running_medians(sizes)
    mean = MEAN_SIZE * np.cumsum(sizes) / np.arange(1, len(sizes) + 1)
    known = np.where(spread > 0, spread, mean) / np.sqrt(2)  # of the changes up to each
    before = np.arange(len(difference)) - 2  # the last change that lies wholly before the row
    result: Floats = known[np.maximum(before, window - 2)]
    return result


def _running_medians(values: Floats) -> Floats:
    """The median of all values up to each."""
    ordered: list[float] = []
    medians = np.empty(len(values))
    for at, value in enumerate(values.tolist()):
        insort(ordered, value)
        medians[at] = (ordered[at // 2] + ordered[(at + 1) // 2]) / 2
    return medians


def _first(difference: Floats, limits: Floats, window: int) -> tuple[int, int] | None:
    """The first window whose median is beyond its limit, and the first of its rows that is, to the same side."""
    medians = np.median(np.lib.stride_tricks.sliding_window_view(difference, window), axis=1)
    beyond = np.flatnonzero(np.abs(medians) > limits[: len(medians)])
    if not len(beyond):
        return None
    begin = int(beyond[0])
    side = np.sign(medians[begin]) * difference[begin : begin + window]
    return begin, begin + int(np.flatnonzero(side > limits[begin])[0])
