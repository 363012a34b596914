"""A run that goes on for long takes no more memory than one that has filled its windows; ``make soak`` measures 200."""

from __future__ import annotations

import gc
import json
import sys
from pathlib import Path

import pytest

from grpo_watch.daemon import run_detail
from grpo_watch.daemon.watched_run import WatchedRun
from grpo_watch.detectors.policy import wrong_weights
from grpo_watch.engine.records import ChannelKind, RawRow, Stream
from grpo_watch.frameworks.guessing import guess
from grpo_watch.frameworks.resolver import MAX_PLANS
from tests.model.memory_soak import Figures, Sample, row_of
from tests.support.live import watched

FILLED, LONGER = 1_300, 1_200
"""Rows: 512 are kept whole, and those for charts were thinned by then; so many more."""
CHARTS = 30_000
"""Numbers kept for charts here: 750 rows of this log."""


def _feed(run: WatchedRun, first: int, rows: int, new: str = "") -> int:
    """Python's memory blocks after so many rows, each stored at once; ``new`` is a key that each has for itself."""
    for step in range(first, first + rows):
        values = json.loads(row_of(step))
        del values["global_step/max_steps"]
        if new:
            values[new.format(step=step)] = 0.25
        run.feed(
            RawRow("logging.jsonl", ChannelKind.JSONL, step, values, Stream.TRAIN, max_steps=10**6, seen=1e9 + step)
        )
        run.batch(1e9 + step)
    assert not run.failures
    guess.cache_clear()  # of all runs, and bounded
    gc.collect()
    return sys.getallocatedblocks()


@pytest.mark.slow
def test_a_long_run_takes_no_more_memory_than_one_that_filled_its_windows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wrong_weights, "ROWS_AHEAD", 256)  # its bound takes thousands of rows to reach
    monkeypatch.setattr(wrong_weights, "BATCHES_AHEAD", 256)
    monkeypatch.setattr(run_detail, "LIVE_NUMBERS", CHARTS)
    run = watched(tmp_path, now=1e9)
    filled = _feed(run, 1, FILLED)
    longer = _feed(run, FILLED + 1, LONGER)
    assert longer - filled < LONGER / 2, "half a block for each row more"


@pytest.mark.slow
@pytest.mark.parametrize("key", ["rewards/task{step}/mean", "samples/{step}"])
def test_names_that_no_other_row_has_take_no_more_memory_in_the_end(
    key: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A key that holds a step or an id, of a reward function and of a metric that nobody knows."""
    monkeypatch.setattr(wrong_weights, "ROWS_AHEAD", 256)
    monkeypatch.setattr(run_detail, "LIVE_NUMBERS", CHARTS)
    run = watched(tmp_path, now=1e9)
    filled = _feed(run, 1, FILLED, key)
    longer = _feed(run, FILLED + 1, 4 * MAX_PLANS, key)
    assert longer - filled < 4 * MAX_PLANS, "a block for each name"


def test_growth_fails_the_soak() -> None:
    flat = [Sample(rows, 100, 20, 7) for rows in range(1, 9)]
    assert not Figures(1, flat).failed
    for leak in (Sample(9, 120, 20, 7), Sample(9, 100, 40, 7), Sample(9, 100, 20, 8)):
        assert Figures(1, [*flat, leak]).failed
