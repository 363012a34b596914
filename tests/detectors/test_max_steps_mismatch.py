"""Totals that were printed, against the prediction."""

from __future__ import annotations

import pytest

from grpo_watch.core.records import Progress, RunConfig, Scalar, Setting
from tests.support.detecting import Watched
from tests.support.records import row

RULE = "max-steps-mismatch"
COMPLETE: dict[str, Scalar] = {
    "dataset_size": 64,
    "per_device_train_batch_size": 8,
    "num_generations": 8,
    "gradient_accumulation_steps": 1,
}


def fed(total: int, framework: str = "ms-swift", version: str | None = None, **settings: Scalar) -> Watched:
    run = Watched(RULE)
    known = {name: Setting(value, "test") for name, value in settings.items()}
    return run.feed(RunConfig(framework, version, known), Progress("log", 1, total), row(1, loss=0.0))


def test_the_predicted_total_and_its_neighbours_are_fine() -> None:
    """One step more or less is tolerated."""
    for total in (63, 64, 65):
        run = fed(total, **COMPLETE)
        assert run.changes == []
        assert run.monitor.evaluated


def test_half_of_it_is_a_second_process_that_nobody_mentioned() -> None:
    run = fed(32, **COMPLETE)
    assert [change[0] for change in run.changes] == ["firing"]
    assert run.said[-1].reading.evidence["predicted"] == 64
    assert fed(32, world_size=2, **COMPLETE).changes == []


def test_one_percent_of_a_long_run_is_tolerated() -> None:
    """Of 6,400 steps 64 are."""
    long = {**COMPLETE, "dataset_size": 6400}
    assert fed(6336, **long).changes == []
    assert fed(6335, **long).changes != []


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({**COMPLETE, "dataset_size": None}, "dataset_size"),
        ({**COMPLETE, "num_generations": None}, "num_generations"),
        ({**COMPLETE, "max_steps": 10}, "max_steps is set"),
        ({**COMPLETE, "dynamic_sample": True}, "dynamic sampling"),
    ],
)
def test_it_is_blind_where_something_is_missing(settings: dict[str, Scalar], reason: str) -> None:
    run = fed(10, **{name: value for name, value in settings.items() if value is not None})
    assert run.changes == []
    assert reason in (run.monitor.detector.blind_because(run.state) or "")


def test_other_counting_is_not_judged() -> None:
    """verl counts otherwise, and so did TRL before 0.20."""
    assert "not known" in (fed(10, "verl", **COMPLETE).blind_reason)
    assert "0.20" in fed(10, "trl", "0.19.1", **COMPLETE).blind_reason
    assert fed(10, "trl", "0.20.0", **COMPLETE).changes != []
