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
    """verl counts otherwise."""
    assert "not known" in (fed(10, "verl", **COMPLETE).blind_reason)


def test_old_trl_counts_what_it_does_not_draw() -> None:
    """26 prompts x 4 on 2 processes of 4 are 13 micro-steps, 2 to a step: 7 in TRL 0.19, 6 from 0.20 on."""
    settings = {
        "dataset_size": 2600, "per_device_train_batch_size": 4, "num_generations": 32, "world_size": 2,
        "gradient_accumulation_steps": 40,
    }  # fmt: skip
    # 83,200 completions: floor(2600 / 10) = 260 steps in both; one prompt more makes the 261st only where it is counted
    assert fed(260, "trl", "0.20.0", **settings).changes == []
    short = {**settings, "dataset_size": 19}
    # 19 prompts: ceil(19 x 32 / 8) = 76 micro-steps, ceil(76 / 40) = 2 steps; 0.20 draws one batch of 10: 1 step
    assert fed(2, "trl", "0.19.1", **short).changes == []
    assert fed(4, "trl", "0.20.0", **short).said[-1].reading.evidence["predicted"] == 1
    assert fed(4, "trl", "0.19.1", **short).said[-1].reading.evidence["predicted"] == 2


def test_the_likeliest_setting_is_named() -> None:
    """Half the steps: a process that nobody counted. Twice the steps: iterations, or epochs where those are known."""

    def named(total: int, **settings: Scalar) -> object:
        return fed(total, **{**COMPLETE, **settings}).said[-1].reading.evidence.get("explained_by")

    assert named(32) == "world_size = 2"
    assert named(128) == "num_iterations = 2"
    assert named(128, num_iterations=1) == "num_train_epochs = 2"
    assert named(61) is None
