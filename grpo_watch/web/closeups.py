"""Turns what the daemon keeps of one run into what its page draws: charts, the matrix of copies, the map of tensors."""

from __future__ import annotations

from typing import Any

import numpy as np

from grpo_watch.core.diagnosis import Finding
from grpo_watch.core.snapshot import RunSnapshot
from grpo_watch.runtime.batches import BatchView
from grpo_watch.runtime.charts import bands, charts
from grpo_watch.runtime.closeup import Closeup
from grpo_watch.runtime.tensor_map import ABSENT, WeightsView
from grpo_watch.runtime.thin import Floats
from grpo_watch.runtime.thinned import Thinned


def charts_document(snapshot: RunSnapshot, rows: Thinned, *, by_time: bool) -> dict[str, Any]:
    """The charts of a run over its steps, or over time (Unix seconds) where its rows have times.

    ``bands`` are what alerts cover, ``resumes`` where an attempt went on, both on the axis that ``axis`` names;
    ``stride``: a point of an old part stands for so many rows.
    """
    times = rows.moments
    timed = by_time and len(rows) > 0 and not bool(np.isnan(times).all())
    place = _Clock(rows, times) if timed else None
    return {
        "axis": "time" if timed else "step",
        "timed": len(rows) > 0 and not bool(np.isnan(times).all()),
        "rows": rows.rows,
        "stride": rows.stride,
        "charts": charts(rows, times=times if timed else None),
        "bands": bands(snapshot.findings) if place is None else _bands_in_time(snapshot.findings, place),
        "resumes": _resumes(rows, place),
    }


def batches_document(closeup: Closeup) -> dict[str, Any]:
    """Of the newest batches which completions of a group are equal, by number of first appearance; newest last."""
    return {"batches": [_batch(view) for view in closeup.batches]}


def weights_document(closeup: Closeup) -> dict[str, Any]:
    """Of the newest checkpoints the share of tensors that changed, layer by kind; None: there is no such tensor."""
    return {"checkpoints": [_weights(view) for view in closeup.weights]}


def _batch(view: BatchView) -> dict[str, Any]:
    return {
        "step": view.step,
        "groups": view.groups,
        "completions": view.completions,
        "repeated": view.repeated,
        "reason": view.reason,
        "patterns": [list(pattern) for pattern in view.patterns],
    }


def _weights(view: WeightsView) -> dict[str, Any]:
    return {
        "step": view.step,
        "before": view.before,
        "kind": view.kind,
        "rank": view.rank,
        "tensors": view.tensors,
        "changed": view.changed,
        "layers": view.layers,
        "kinds": view.kinds,
        "cells": [None if cell == ABSENT else cell / 100 for cell in view.cells],
        "problems": view.problems,
    }


class _Clock:
    """Says when a step of an attempt was logged, as well as the kept rows tell."""

    def __init__(self, rows: Thinned, times: Floats) -> None:
        known = ~np.isnan(times)
        attempts, steps = rows.places
        self._attempts, self._steps, self._times = attempts[known], steps[known], times[known]

    def at(self, attempt: int, step: int) -> float:
        """Unix seconds."""
        of = self._attempts == attempt
        if not of.any():
            later = self._attempts > attempt
            return float(self._times[later].min() if later.any() else self._times.max())
        return float(np.interp(step, self._steps[of], self._times[of]))


def _bands_in_time(findings: tuple[Finding, ...], clock: _Clock) -> list[dict[str, Any]]:
    """The bands with moments for steps. One that ended in a later attempt ends where that one's step is."""
    by_place = {(f.rule, f.first_step, f.fired_step): f for f in findings}
    told = []
    for band in bands(findings):
        attempt = by_place[band["rule"], band["first"], band["fired"]].attempt
        ends = band["resolved"]
        told.append(
            {
                **band,
                "first": clock.at(attempt, band["first"]),
                "fired": clock.at(attempt, band["fired"]),
                "resolved": None if ends is None else clock.at(attempt + (ends < band["fired"]), ends),
            }
        )
    return told


def _resumes(rows: Thinned, clock: _Clock | None) -> list[dict[str, Any]]:
    """Where each attempt but the first begins."""
    attempts, steps = rows.places
    begins = np.flatnonzero(np.diff(attempts, prepend=attempts[:1]))
    return [
        {
            "attempt": int(attempts[at]),
            "at": int(steps[at]) if clock is None else clock.at(int(attempts[at]), int(steps[at])),
        }
        for at in begins
    ]
