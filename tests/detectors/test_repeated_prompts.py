"""Prompts that come again: a data order that started over, a sampler that is stuck, few prompts by design."""

from __future__ import annotations

from dataclasses import replace

from grpo_watch.engine.records import CompletionSummary, Record
from tests.support.detecting import Watched
from tests.support.records import a_batch, a_group, row

RULE = "repeated-prompts"


def batch(step: int, *prompts: str) -> CompletionSummary:
    groups = tuple(a_group((0, 1), f"{step} {prompt}", prompt_id=prompt) for prompt in prompts)
    return replace(a_batch(step), groups=groups)


def drawn(step: int, number: int, epoch: float | None = None) -> list[Record]:
    """The row of a step and a batch of four prompts, the ``number``-th of the data."""
    prompts = [f"p{4 * number + at}" for at in range(4)]
    known = {} if epoch is None else {"epoch": epoch}
    return [row(step, loss=0.1, **known), batch(step, *prompts)]


def run_of(numbers: list[int], per_step: float | None = 0.01) -> Watched:
    """Batches by their number in the data, one per step."""
    run = Watched(RULE)
    for step, number in enumerate(numbers, 1):
        run.feed_all(drawn(step, number, None if per_step is None else step * per_step))
    return run


def test_a_resume_that_restarts_the_data() -> None:
    """Batches 0 to 19, then 0, 1, 2: the third settles it, in the middle of the first epoch."""
    run = run_of([*range(20), 0, 1, 2])
    assert run.changes == [("firing", 23, "warning")]
    assert "same order" in run.said[-1].reading.message


def test_it_lasts_as_long_as_the_data_repeat() -> None:
    """Fifteen of the first twenty batches come again, then new ones: five steps later it is over."""
    run = run_of([*range(20), *range(15), *range(40, 60)])
    assert run.changes == [("firing", 23, "warning"), ("resolved", 40, "warning")]


def test_another_attempt_is_the_same_run() -> None:
    """The windows survive the resume."""
    run = run_of(list(range(20)))
    run.feed(row(15, attempt=2, epoch=0.15))
    for step, number in ((15, 0), (16, 1), (17, 2)):
        run.feed_all([row(step, attempt=2, epoch=step / 100), drawn(step, number)[1]])
    assert run.changes == [("firing", 17, "warning")]


def test_a_resume_that_goes_on_is_fine() -> None:
    """Steps 16 to 20 are repeated with their own prompts, as a crash makes it: one window holds half of them twice."""
    assert run_of([*range(20), *range(15, 30)]).changes == []
    assert run_of([*range(20), *range(10, 30)]).changes == []


def test_an_unshuffled_dataset_starts_over_at_each_epoch() -> None:
    """Twenty batches per epoch, three epochs; a row may also come one step late."""
    assert run_of([*range(20)] * 3, per_step=0.05).said == []
    late = Watched(RULE)
    for step in range(1, 61):
        record, one = drawn(step, (step - 1) % 20, step / 20)
        late.feed(one, record)
    assert late.said == []


def test_without_an_epoch_the_order_proves_nothing() -> None:
    """It may be a new epoch."""
    assert run_of([*range(20), 0, 1, 2], per_step=None).said == []


def test_a_sampler_that_got_stuck() -> None:
    """Batch 19 again and again: from the sixth copy on, half of the last ten batches' prompts are old."""
    run = run_of([*range(20), *[19] * 12], per_step=None)
    # Window of step 25: batches 15 to 19 and five copies, 40 draws of 20 prompts: 0.5.
    assert run.changes == [("firing", 27, "warning")]
    assert run.said[0].first_step == 25


def test_one_prompt_all_the_time() -> None:
    """The dataset's column is constant, or a sampler stands still; in games and environments it is by design."""
    run = Watched(RULE).feed_all(batch(step, "play") for step in range(1, 30))
    assert run.changes == [("firing", 12, "warning")]
    assert run.said[-1].reading.message == "the last 10 prompts drawn are one and the same"
    game = row(1, loss=0.1)._replace(raw={"tools/call_frequency": 1.0})
    run = Watched(RULE).feed(game).feed_all(batch(step, "play") for step in range(1, 30))
    assert run.changes == [("firing", 12, "info")]


def test_a_dataset_smaller_than_the_window() -> None:
    """Three of ten prompts come again within ten batches of one group: below half."""
    assert Watched(RULE).feed_all(batch(step, f"p{step % 7}") for step in range(1, 40)).said == []
