"""Turns what the daemon keeps of one run into what its page draws: charts, the matrix of copies, the map of tensors."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from itertools import pairwise
from types import MappingProxyType
from typing import Any

from grpo_watch.daemon.run_detail import BatchView, ListedGroup, RunDetail
from grpo_watch.engine.diagnosis import Finding
from grpo_watch.engine.snapshot import RunSnapshot
from grpo_watch.report.charts import LOST, ThinnedColumns, bands, charts, finding_charts
from grpo_watch.report.tensor_map import ABSENT, WeightsView

NO_NEEDS: Mapping[str, Sequence[str]] = MappingProxyType({})
NO_KEYS: Mapping[str, str] = MappingProxyType({})


def charts_document(
    snapshot: RunSnapshot,
    rows: ThinnedColumns,
    *,
    by_time: bool,
    needs: Mapping[str, Sequence[str]] = NO_NEEDS,
    keys: Mapping[str, str] = NO_KEYS,
) -> dict[str, Any]:
    """The charts of a run over its steps, or over time (Unix seconds) where its rows have times.

    ``bands`` are what alerts cover, ``resumes`` where an attempt went on, both on the axis that ``axis`` names;
    ``stride``: a point of an old part stands for so many rows. Each chart names the ``rules`` whose findings it shows
    evidence of; the one that shows the top finding's is the ``lead``. ``needs`` is what each rule's detector reads;
    ``keys`` is what the run's own rows call each metric: the ``key`` of a line.
    """
    known = any(time is not None for time in rows.times)
    timed = by_time and known
    place = _Clock(rows) if timed else None
    return {
        "axis": "time" if timed else "step",
        "timed": known,
        "rows": rows.rows,
        "stride": rows.stride,
        "charts": finding_charts([_with_keys(each, keys) for each in charts(rows, by_time=timed)], snapshot, needs),
        "bands": bands(snapshot.findings) if place is None else _bands_in_time(snapshot.findings, place),
        "resumes": _resumes(rows, place),
    }


def _with_keys(chart: dict[str, Any], keys: Mapping[str, str]) -> dict[str, Any]:
    """The chart; each line names the key that the run's own rows have for it (None: it is computed here)."""
    return {
        **chart,
        "lines": [{**line, "key": keys.get(line["name"].removesuffix(f" {LOST}"))} for line in chart["lines"]],
    }


def batches_document(detail: RunDetail) -> dict[str, Any]:
    """The newest batches, newest last: which completions of a group are equal, and the rows of the first groups."""
    return {"batches": [_batch(view) for view in detail.batches]}


def weights_document(detail: RunDetail) -> dict[str, Any]:
    """Of the newest checkpoints the share of tensors that changed, layer by kind; None: there is no such tensor."""
    return {"checkpoints": [_weights(view) for view in detail.weights]}


def _batch(view: BatchView) -> dict[str, Any]:
    return {
        "step": view.step,
        "groups": view.groups,
        "completions": view.completions,
        "repeated": view.repeated,
        "reason": view.reason,
        "patterns": [list(pattern) for pattern in view.patterns],
        "listed": [_listed(group) for group in view.listed],
    }


def _listed(group: ListedGroup) -> dict[str, Any]:
    """The rows of a group; ``prompt`` and ``texts`` are None unless the settings ask for them."""
    return {
        "lengths": group.length_column(),
        "scores": group.score_columns(),
        "prompt": group.shown[0] if group.shown else None,
        "texts": list(group.shown[1:]) or None,
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
    """Estimates from the kept rows when a step of an attempt was logged."""

    def __init__(self, rows: ThinnedColumns) -> None:
        self._known: dict[int, tuple[list[int], list[float]]] = {}
        for attempt, step, time in zip(rows.attempts, rows.steps, rows.times, strict=True):
            if time is not None:
                steps, times = self._known.setdefault(attempt, ([], []))
                steps.append(step)
                times.append(time)

    def at(self, attempt: int, step: int) -> float:
        """Unix seconds; between two rows in proportion, of an attempt without rows those of the nearest later one."""
        later = [each for each in sorted(self._known) if each >= attempt]
        steps, times = self._known[later[0] if later else max(self._known)]
        after = bisect_left(steps, step)
        if after == 0 or after == len(steps):
            return times[min(after, len(times) - 1)]
        share = (step - steps[after - 1]) / (steps[after] - steps[after - 1])
        return times[after - 1] + share * (times[after] - times[after - 1])


def _bands_in_time(findings: tuple[Finding, ...], clock: _Clock) -> list[dict[str, Any]]:
    """The bands with moments for steps. A band resolved in a later attempt ends at that attempt's step."""
    by_place = {(f.rule, f.first_step, f.fired_step): f for f in findings}
    timed = []
    for band in bands(findings):
        attempt = by_place[band["rule"], band["first"], band["fired"]].attempt
        ends = band["resolved"]
        timed.append(
            {
                **band,
                "first": clock.at(attempt, band["first"]),
                "fired": clock.at(attempt, band["fired"]),
                "resolved": None if ends is None else clock.at(attempt + (ends < band["fired"]), ends),
            }
        )
    return timed


def _resumes(rows: ThinnedColumns, clock: _Clock | None) -> list[dict[str, Any]]:
    """Where each attempt but the first begins."""
    places = list(zip(rows.attempts, rows.steps, strict=True))
    begins = [after for before, after in pairwise(places) if after[0] != before[0]]
    return [{"attempt": attempt, "at": step if clock is None else clock.at(attempt, step)} for attempt, step in begins]
