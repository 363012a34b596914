"""Faults for which no recorded run is at hand, put into rows of real healthy runs: the noise is real, the fault made.

Where each one has to be found is worked out in its docstring from the injection, not from what the rules said.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import sqrt

import pytest

from grpo_watch.engine.metric_names import split_label
from grpo_watch.engine.records import MetricRow
from tests.support.detecting import Watched
from tests.support.real import injected, real_rows
from tests.support.records import row

HEALTHY = "trl-1.16.0-02-healthy-nobeta"
"""100 rows; the reward rises from 0.50 to 0.95, entropy falls from 2.1 to 1.6."""
FLAT = "trl-1.16.0-03b-healthy-lowlr"
"""100 rows; the reward stays between 0.40 and 0.54."""
LEARNS = "trl-1.16.0-03-healthy-warmup"
"""100 rows; KL rises from 0 to 0.2 within 50 rows."""
RESUMED = "trl-1.16.0-19-crash-resume"
"""50 rows, then rows 41 to 100 of a second attempt; a good resume."""


def reward_of(record: MetricRow) -> float:
    value = record.values["reward_mean"]
    assert value is not None
    return value


def parts(record: MetricRow, **scores: float) -> Mapping[str, float | None]:
    """Values of a row with these reward functions in place of its own; the total is their sum."""
    gone = dict.fromkeys((key for key in record.values if split_label(key)[0].startswith("reward_function")), None)
    said = {f"reward_function_mean[{name}]": score for name, score in scores.items()}
    return {**gone, **said, "reward_mean": sum(scores.values())}


def without_nulls(rows: list[MetricRow]) -> list[MetricRow]:
    return [r._replace(values={key: value for key, value in r.values.items() if value is not None}) for r in rows]


def test_accuracy_is_traded_for_format() -> None:
    """From step 41 accuracy falls over 40 steps to a tenth while format gains 0.05 a step.

    Accuracy's share in the middle of each block of ten: 1, 0.89, 0.66, 0.44, 0.21. The block of 61 to 70 lies 56 %
    below that of 31 to 40 (three blocks back): the first breach, at step 70. The second, at 80, fires.
    """

    def traded(record: MetricRow) -> Mapping[str, float | None]:
        gone = min(1.0, max(0, record.step - 40) / 40)
        return parts(record, accuracy=reward_of(record) * (1 - 0.9 * gone), format=0.05 * max(0, record.step - 40))

    run = Watched("reward-components-diverge").feed_all(without_nulls(injected(FLAT, traded)))
    assert run.changes == [("firing", 80, "warning")]
    assert (run.said[-1].key, run.said[-1].first_step) == ("accuracy", 70)


def test_a_reward_that_grows_in_all_its_parts_is_quiet() -> None:
    def grown(record: MetricRow) -> Mapping[str, float | None]:
        return parts(record, accuracy=reward_of(record), format=0.5 * reward_of(record) + 0.002 * record.step)

    assert Watched("reward-components-diverge").feed_all(without_nulls(injected(HEALTHY, grown))).changes == []


def test_a_penalty_takes_what_a_bonus_gives() -> None:
    """30 rows make a window, looked at every 15 rows: breaches at 30 and 45, and two are needed."""

    def cancelled(record: MetricRow) -> Mapping[str, float | None]:
        return parts(record, bonus=reward_of(record), penalty=-reward_of(record) + 0.01 * (record.step % 2))

    run = Watched("reward-components-cancel").feed_all(without_nulls(injected(HEALTHY, cancelled)))
    assert run.changes == [("firing", 45, "warning")]


def test_a_penalty_of_half_the_bonus_cancels_nothing() -> None:
    """The total keeps half of the bonus' spread, far more than a quarter of the penalty's."""

    def halved(record: MetricRow) -> Mapping[str, float | None]:
        return parts(record, bonus=reward_of(record), penalty=-0.5 * reward_of(record))

    assert Watched("reward-components-cancel").feed_all(without_nulls(injected(HEALTHY, halved))).changes == []


def leaking(begin: int, per_step: float) -> list[MetricRow]:
    """Four times the real run's rows; 60 GiB, up and down by a few hundredths with the lengths, and a leak."""
    rows: list[MetricRow] = []
    for part in range(4):
        for record in real_rows(HEALTHY):
            step = 100 * part + record.step
            wobble = 0.002 * (record.values["completion_length_mean"] or 0.0)
            memory = 60.0 + wobble + per_step * max(0, step - begin)
            rows.append(record._replace(step=step, values={**record.values, "memory_gib": memory}))
    return rows


def test_memory_leaks_from_the_start() -> None:
    """80 GiB are full at 77.6: 17.6 GiB at 0.02 a step are 880 steps. Rows 100 and 120 breach."""
    run = Watched("memory-creep", max_steps=2000).feed_all(leaking(0, 0.02))
    assert run.changes == [("firing", 120, "warning")]
    assert run.said[-1].reading.evidence["full_at_step"] == pytest.approx(880, abs=15)


def test_a_leak_that_begins_late_is_seen_as_well() -> None:
    """From step 200 on 0.02 a step. Of 64 GiB 62.08 can be used: full 102 steps later. A GiB more shows at 250."""
    run = Watched("memory-creep", max_steps=2000).feed_all(leaking(200, 0.02))
    ((state, step, _),) = run.changes
    assert state == "firing"
    assert 250 < step <= 400
    assert run.said[-1].reading.evidence["full_at_step"] == pytest.approx(302, abs=5)


def test_a_leak_too_slow_for_this_run_is_quiet() -> None:
    """17.6 GiB at 0.02 are full at 880, after the run."""
    assert Watched("memory-creep", max_steps=800).feed_all(leaking(0, 0.02)).changes == []


def test_a_resume_that_begins_from_the_base_model() -> None:
    """Attempt 2 shows KL and reward of the run's first rows; ten rows after step 41 it is reported."""
    first = {r.step: r for r in real_rows(RESUMED) if r.attempt == 1}

    def lost(record: MetricRow) -> Mapping[str, float | None]:
        source = first.get(record.step - 40, record)
        return {key: source.values[key] for key in ("kl_reference", "reward_mean")}

    run = Watched("resume-regression").feed_all(injected(RESUMED, lost, attempt=2))
    assert run.changes == [("firing", 50, "warning")]
    assert run.said[-1].first_step == 41


def test_a_resume_with_a_new_schedule_and_data_order() -> None:
    """Three times the learning rate and an epoch that starts over: two signs."""

    def restarted(record: MetricRow) -> Mapping[str, float | None]:
        rate, epoch = record.values["learning_rate"] or 0.0, record.values["epoch"] or 0.0
        return {"learning_rate": 3 * rate, "epoch": epoch / 10}

    assert Watched("resume-regression").feed_all(injected(RESUMED, restarted, attempt=2)).changes == [
        ("firing", 50, "warning")
    ]


def test_the_resume_as_it_really_was_is_quiet() -> None:
    assert Watched("resume-regression").feed_all(real_rows(RESUMED)).changes == []


def test_an_engine_that_keeps_the_first_weights() -> None:
    """The reference is what the engine still runs, so that the gap is that of the real KL: about sqrt(2 KL) over 0.01.

    The first five gaps have the median 0.011. Entropy is 2.1, so that 0.315 of the gap may be its doing: the median of
    five rows passes that at step 27 (KL 0.035 to 0.061, gaps 0.27 to 0.36), in step with what was learnt. Three rows.
    """

    def stale(record: MetricRow) -> Mapping[str, float | None]:
        return {"logprob_gap_rollout": 0.01 + sqrt(2 * abs(record.values["kl_reference"] or 0.0))}

    run = Watched("stale-rollout-weights").feed_all(injected(LEARNS, stale))
    assert run.changes == [("firing", 29, "critical")]
    assert run.said[-1].first_step == 27


def test_an_engine_that_follows_is_quiet() -> None:
    """0.5 % of the entropy, up and down with the real gradient norm."""

    def synced(record: MetricRow) -> Mapping[str, float | None]:
        entropy, norm = record.values["entropy"] or 0.0, record.values["grad_norm"] or 0.0
        return {"logprob_gap_rollout": 0.005 * entropy * (0.7 + 0.4 * norm)}

    for rule in ("stale-rollout-weights", "train-rollout-mismatch"):
        assert Watched(rule).feed_all(injected(LEARNS, synced)).changes == []


def test_the_trainer_forgets_the_temperature() -> None:
    """A quarter of the entropy (2.1): 0.53, above 0.1 and above 15 % of the entropy. Five rows, and three breaches."""

    def hot(record: MetricRow) -> Mapping[str, float | None]:
        return {"logprob_gap_rollout": 0.25 * (record.values["entropy"] or 0.0)}

    run = Watched("train-rollout-mismatch").feed_all(injected(LEARNS, hot))
    assert run.changes == [("firing", 7, "warning")]


@pytest.mark.parametrize("name", [FLAT, LEARNS, RESUMED, "trl-1.16.0-06-healthy-numiter2"])
def test_a_kl_that_grows_is_no_floor(name: str) -> None:
    assert Watched("kl-stuck-at-zero", beta=0.04).feed_all(real_rows(name)).changes == []


def test_one_odd_batch_that_is_used_four_times_is_one_row() -> None:
    """A KL of 2 and gradients a hundred times as large on all four rows of the batch at step 61."""
    rows: list[MetricRow] = []
    for record in real_rows(LEARNS):
        odd = record.step == 61
        kl, norm = record.values["kl_reference"] or 0.0, record.values["grad_norm"] or 0.0
        said = {"kl_reference": 2.0 if odd else kl, "grad_norm": 100 * norm if odd else norm}
        generated = row(4 * record.step - 3, reward_mean=reward_of(record))
        rows.append(generated._replace(values={**generated.values, **said}))
        rows += [generated._replace(step=generated.step + more, values=said) for more in (1, 2, 3)]
    assert Watched("kl-explosion").feed_all(rows).changes == []
    assert {change[2] for change in Watched("grad-norm-spike").feed_all(rows).changes} == {"info"}


def test_one_row_of_high_entropy_is_no_explosion() -> None:
    """Twelve times the entropy, four times the length: means of five rows are 3.2 and 1.6 times as high."""

    def odd(record: MetricRow) -> Mapping[str, float | None]:
        times = 12.0 if record.step == 50 else 1.0
        length = (record.values["completion_length_mean"] or 0.0) * (4.0 if times > 1 else 1.0)
        return {"entropy": (record.values["entropy"] or 0.0) * times, "completion_length_mean": length}

    assert Watched("entropy-explosion").feed_all(injected(FLAT, odd)).changes == []
