"""A filter that took half of the dataset: what frameworks print of it, and what is no loss."""

from __future__ import annotations

from pathlib import Path

import pytest

from grpo_watch.engine.records import RunConfig
from grpo_watch.sources.console.source import ConsoleSource
from tests.support.detecting import Watched

RULE = "dataset-shrunk"


def watched(log: str, folder: Path) -> Watched:
    """The rule, fed what the console source reads of this log."""
    path = folder / "train.log"
    path.write_text(log)
    source = ConsoleSource("train.log", path, [folder])
    items = [*source.poll(None), *source.finish()]
    return Watched(RULE).feed_all(item for item in items if isinstance(item, RunConfig))


VERL = """\
(TaskRunner pid=7) dataset len: 21836
Filtering prompts longer than 512 tokens: 100%|##| 21836/21836
(TaskRunner pid=7) filter dataset len: 9120
(TaskRunner pid=7) dataset len: 200
(TaskRunner pid=7) filter dataset len: 190
"""


@pytest.mark.parametrize(
    ("log", "says"),
    [
        (
            VERL,
            "a filter left 9,120 of 21,836 rows of the dataset",
        ),
        (
            "dataset len: 50000\nselected 1000 random samples out of 50000\nfilter dataset len: 400\n",
            "a filter left 400 of 1,000 rows of the dataset",
        ),
        (
            "[INFO:swift] Dataset filtered, origin length: 8000, filtered dataset length: 3100\n",
            "a filter left 3,100 of 8,000 rows of the dataset",
        ),
        (
            "INFO dataset.py:63 - Total dataset size: 8000\nINFO dataset.py:84 - Filtered dataset size: 3100\n",
            "a filter left 3,100 of 8,000 rows of the dataset",
        ),
    ],
    ids=["verl", "verl, of a sample", "ms-swift", "SkyRL"],
)
def test_both_sizes_are_read_from_the_log(log: str, says: str, tmp_path: Path) -> None:
    run = watched(log, tmp_path)
    assert [change[0] for change in run.changes] == ["firing"]
    assert run.said[0].reading.message == says


@pytest.mark.parametrize(
    "log",
    [
        "dataset len: 20000\nfilter dataset len: 14000\n",
        "dataset len: 50000\nselected 1000 random samples out of 50000\nfilter dataset len: 990\n",  # a sample
        "dataset len: 7473\ndataset len: 1319\n",  # no filter: training set and validation set
        "filter dataset len: 10\n",  # the first size is in a part of the log that is gone
        "dataset len: 10\nfilter dataset len: 2\n",
        # the validation set lost half, the training set nearly nothing
        "dataset len: 21836\nfilter dataset len: 21000\ndataset len: 200\nfilter dataset len: 90\n",
    ],
)
def test_what_is_no_loss(log: str, tmp_path: Path) -> None:
    assert watched(log, tmp_path).changes == []


def test_a_run_that_filters_nothing_can_not_have_it(tmp_path: Path) -> None:
    run = watched("[INFO:swift] rank: 0, local_rank: 0, world_size: 4, local_world_size: 2\n", tmp_path)
    assert run.blind_reason == "no log prints that a filter left rows out"
