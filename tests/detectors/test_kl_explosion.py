"""KL far from the reference: jumps, drifts, spikes, and what pays for it."""

from __future__ import annotations

import pytest

from grpo_watch.engine.records import RunConfig
from tests.support.detecting import Watched
from tests.support.records import row

RULE = "kl-explosion"


def fed(kl: list[float], **more: list[float]) -> Watched:
    """Rows from step 1; other metrics by row."""
    return Watched(RULE).feed_all(
        row(n + 1, kl_reference=value, **{name: series[n] for name, series in more.items()})
        for n, value in enumerate(kl)
    )


def test_fires_at_the_third_high_row_of_five() -> None:
    assert fed([0.1] * 20 + [2.0] * 5).changes == [("firing", 23, "warning")]
    assert fed([0.1] * 20 + [2.0] * 2 + [0.1] * 20).changes == []


@pytest.mark.parametrize("value", [1.4, -1.4])
def test_below_the_level_is_quiet_without_a_usual_value(value: float) -> None:
    """Ten calm rows don't tell what is usual."""
    assert fed([0.01] * 10 + [value] * 10).changes == []


def test_the_sign_of_k1_estimators_does_not_count() -> None:
    assert fed([-2.0] * 5).changes == [("firing", 5, "warning")]


def test_a_gain_pays_up_to_the_limit() -> None:
    """Rising reward: 4.9 is in order, 5 is not (its first row might be a lone spike)."""
    gain = [0.5 + 0.01 * n for n in range(40)]
    assert fed([0.1] * 10 + [4.9] * 30, reward_mean=gain).changes == []
    assert fed([0.1] * 10 + [5.0] * 30, reward_mean=gain).changes == [
        ("firing", 11, "info"),
        ("firing", 13, "warning"),
    ]


def test_tiny_beta_is_the_plan_unless_a_sign_agrees() -> None:
    def run(reward: float) -> Watched:
        rows = (
            row(n, kl_reference=0.1 if n <= 20 else 3.0, reward_mean=0.9 if n <= 20 else reward) for n in range(1, 41)
        )
        return Watched(RULE, beta=1e-4).feed_all(rows)

    assert run(0.9).changes == []
    assert run(0.0).changes == [("firing", 24, "critical")]


HIGH = [0.7369, 0.9363, 0.6617, 0.5722, 1.107, 1.276, 1.933, 1.698, 1.775]


@pytest.mark.parametrize(
    ("loss", "changes"),
    [
        ([0.0007, 0.0009, 0.0007, 0.0006, 0.0011, 0.0013, 0.0019, 0.0017, 0.0018], []),
        ([0.0295, 0.0375, 0.0265, 0.0229, 0.0443, 0.051, 0.0773, 0.0679, 0.071], [("firing", 23, "warning")]),
        ([0.0007, -0.02, 0.0107, 0.0006, 0.0011, 0.0013, 0.0019, 0.0017, 0.0018], [("firing", 23, "warning")]),
    ],
    ids=["loss is 0.001 of KL", "loss is 0.04 of KL", "loss is more than KL"],
)
def test_where_no_setting_names_beta_the_loss_does(loss: list[float], changes: list[tuple[str, int, str]]) -> None:
    """KL on two completions a step (usual: 0.01), four decimals of the loss, as the Trainer prints it."""
    assert fed([0.01] * 20 + HIGH, loss=[0.0] * 20 + loss).changes == changes


def test_becomes_critical_when_the_reward_goes() -> None:
    run = fed([0.1] * 20 + [3.0] * 20, reward_mean=[0.9] * 30 + [0.0] * 10)
    assert run.changes == [("firing", 23, "warning"), ("firing", 34, "critical")]
    assert "reward fell" in run.said[-1].reading.message


def test_an_explosion_does_not_become_normal() -> None:
    """A thousand high rows later it still fires."""
    assert fed([0.01] * 30 + [0.8] * 1000).changes == [("firing", 33, "warning")]


def test_the_rise_of_a_fast_learner_is_no_jump() -> None:
    """With a warm-up KL goes by the fourth power, to 0.7 in 35 rows: ten times the first ones, not the last 20."""
    assert fed([0.7 * (n / 35) ** 4 for n in range(36)] + [0.7, 0.5, 0.9, 0.6, 0.8] * 10).changes == []


def test_a_lone_spike_is_an_info() -> None:
    assert fed([0.1] * 20 + [17.8] + [0.1] * 20).changes == [("firing", 21, "info"), ("resolved", 31, "info")]


def test_a_new_attempt_begins_with_empty_windows() -> None:
    """Two high rows before the crash and two after the resume are not three of five."""
    run = fed([0.1] * 20 + [2.0] * 2)
    run.feed(*(row(n, attempt=2, kl_reference=2.0 if n < 23 else 0.1) for n in range(21, 30)))
    assert run.changes == []


def test_rows_without_kl_are_no_rows() -> None:
    run = Watched(RULE)
    for n in range(1, 50):
        run.feed(row(n, kl_reference=2.0) if n % 10 == 0 else row(n, reward_mean=0.5))
    assert run.changes == []


@pytest.mark.parametrize(
    "learnt",
    [
        {"completion_length_mean": [400 - 5.5 * n for n in range(60)]},
        {"completion_truncated_ratio": [0.1 + 0.014 * n for n in range(60)]},
    ],
    ids=["shorter", "longer"],
)
@pytest.mark.parametrize("beta", [0.04, 1e-4])
def test_other_lengths_prove_nothing_while_the_reward_rises(learnt: dict[str, list[float]], beta: float) -> None:
    """Up to KL 3.05: lengths at a quarter, or 93 % cut off; both agree as soon as the reward stands still."""

    def said(gain: float) -> set[str]:
        run = Watched(RULE, beta=beta).feed_all(
            row(n + 1, kl_reference=0.1 + 0.05 * n, reward_mean=0.2 + gain * n, **{k: v[n] for k, v in learnt.items()})
            for n in range(60)
        )
        return {severity for _, _, severity in run.changes}

    assert said(0.0125) == set()
    assert "critical" in said(0.0)


@pytest.mark.parametrize(("end", "severity"), [(0.98, "warning"), (0.5, "critical")])
def test_shorter_completions_prove_nothing_while_the_reward_is_full(end: float, severity: str) -> None:
    """A small model that solves a task at once writes less, far from its reference; one that solves nothing is lost."""
    series = [0.6, 0.8, 0.95, *[end] * 27]
    run = fed([0.1] * 10 + [3.0] * 20, reward_mean=series, completion_length_mean=[10.0] * 10 + [3.0] * 20)
    assert run.changes[-1][2] == severity


@pytest.mark.parametrize(("agrees", "step"), [("reward_zero_std_ratio", 34), ("completion_duplicate_ratio", 33)])
def test_a_rising_reward_does_not_pay_for_lost_spread_or_repeated_texts(agrees: str, step: int) -> None:
    """From row 31 on: 70 % of five rows are four without spread, half of them are three of copies."""
    rows = (
        row(n + 1, kl_reference=0.1 + 0.05 * n, reward_mean=0.2 + 0.0125 * n, **{agrees: 0.0 if n < 30 else 1.0})
        for n in range(60)
    )
    assert Watched(RULE, beta=0.04).feed_all(rows).changes == [("firing", step, "warning")]


@pytest.mark.parametrize(
    "sign",
    [
        {"completion_length_mean": (400.0, 100.0)},
        {"completion_truncated_ratio": (0.1, 0.9)},
        {"completion_duplicate_ratio": (0.0, 1.0)},
        {"reward_zero_std_ratio": (0.0, 1.0)},
        {"reward_mean": (0.5, 0.0)},
    ],
    ids=lambda sign: next(iter(sign)),
)
def test_each_sign_alone_makes_it_critical_where_no_reward_was_gained(sign: dict[str, tuple[float, float]]) -> None:
    """Row 41 on: a quarter of the length, 90 % cut off, copies, no spread, no reward; KL 3 from row 21 is the plan."""

    def run(until: int) -> Watched:
        rows = (
            row(
                n,
                kl_reference=0.1 if n <= 20 else 3.0,
                **{"reward_mean": 0.5, **{name: values[n > 40] for name, values in sign.items()}},
            )
            for n in range(1, until)
        )
        return Watched(RULE, beta=1e-4).feed_all(rows)

    assert run(41).changes == []
    assert [severity for _, _, severity in run(61).changes] == ["critical"]


@pytest.mark.parametrize(("first", "severity"), [([0.0, 0.02], "critical"), ([0.55, 0.53], "warning")])
def test_kl_to_a_model_that_training_did_not_start_from_is_at_most_a_warning(first: list[float], severity: str) -> None:
    """A teacher's KL is high on the rows before any learning, and its rise is no distance from the start."""
    kl = [*first, *[0.5] * 28, *[3.0] * 20]
    run = fed(kl, reward_mean=[0.9] * 30 + [0.0] * 20)
    assert run.changes[-1][2] == severity


@pytest.mark.parametrize("first", [[0.3, 1.2], [0.0, 0.6]])
def test_a_fast_explosion_is_no_other_reference(first: list[float]) -> None:
    """KL that doubles from the first step to the second comes from the updates."""
    run = fed([*first, *[3.0] * 30], reward_mean=[0.9] * 12 + [0.0] * 20)
    assert run.changes[-1][2] == "critical"


def test_a_resumed_or_thinned_log_does_not_show_another_reference() -> None:
    """High and steady from row 100 on may be what the run learned before."""
    rows = [row(n, kl_reference=0.6 if n < 130 else 3.0, reward_mean=0.9 if n < 130 else 0.0) for n in range(100, 150)]
    assert Watched(RULE).feed_all(rows).changes[-1][2] == "critical"


def test_a_reference_that_is_another_model_shows_at_step_two() -> None:
    """An adapter that is continued begins at the reference, unless the reference lacks it; a teacher is meant."""
    rows = [row(step, kl_reference=0.8 + 0.01 * step, reward_mean=0.5) for step in range(1, 21)]
    mistaken = Watched("kl-explosion", adapter=True, beta=0.04).feed_all(rows)
    assert mistaken.changes == [("firing", 2, "warning")]
    assert mistaken.said[-1].key == "reference"
    assert Watched("kl-explosion", adapter=False, beta=0.04).feed_all(rows).changes == []
    assert Watched("kl-explosion", adapter=True).feed_all(rows).changes == []


def test_a_run_that_begins_at_its_reference_or_is_seen_later_shows_none() -> None:
    near = [row(step, kl_reference=0.01 * step, reward_mean=0.5) for step in range(1, 21)]
    late = [row(step, kl_reference=0.8, reward_mean=0.5) for step in range(50, 70)]
    for rows in (near, late):
        assert Watched("kl-explosion", adapter=True, beta=0.04).feed_all(rows).changes == []


def test_a_kl_that_no_policy_has_is_critical_by_itself() -> None:
    """Nothing else is logged that could agree."""
    rows = [row(step, kl_reference=0.02 if step <= 20 else 400.0) for step in range(1, 41)]
    assert Watched("kl-explosion").feed_all(rows).changes[-1][::2] == ("firing", "critical")


def test_a_kl_that_was_never_low_is_not_compared_with_what_is_usual() -> None:
    rise, level = (fed(kl).said[-1] for kl in ([0.1] * 20 + [2.0] * 5, [1.9, 2.0, 1.8, 1.9, 2.0]))
    assert "usual in this run: below 1" in rise.reading.message
    assert "above 1.5 from the first row on" in level.reading.message


@pytest.mark.parametrize(("framework", "shows"), [("trl", [("firing", 1, "info")]), ("verl", [])])
def test_a_kl_before_the_first_update(framework: str, shows: list[tuple[str, int, str]]) -> None:
    """Of a full model: dropout, or another reference (a teacher may be meant); verl logs it after several updates."""
    run = Watched(RULE).feed(RunConfig(framework, None, {}))
    run.feed(row(1, kl_reference=0.51), row(2, kl_reference=0.77))
    assert run.changes == shows
    later = Watched(RULE).feed(RunConfig(framework, None, {}), row(1, kl_reference=0.0), row(2, kl_reference=0.77))
    assert later.changes == []


@pytest.mark.parametrize("first", [0.35, 0.02])
def test_a_runaway_is_critical_wherever_it_began(first: float) -> None:
    """Dropout gives 0.35 before the first update; what a run does from row 30 on has another cause."""
    run = Watched(RULE).feed(RunConfig("trl", None, {}))
    kls = [first, *(0.02 * step for step in range(2, 30)), *(2.0 * step for step in range(1, 21))]
    rewards = [0.5] * 29 + [0.0] * 20
    rows = zip(kls, rewards, strict=True)
    run.feed_all(row(n, kl_reference=kl, reward_mean=reward) for n, (kl, reward) in enumerate(rows, 1))
    assert run.changes[-1][2] == "critical"


def test_no_reference_excuses_a_kl_of_thousands() -> None:
    """High and steady from the first row on, and then away: a teacher's KL grows no hundredfold."""
    kls = [0.35] * 20 + [500.0 * step for step in range(1, 20)]
    run = Watched(RULE).feed_all(row(n, kl_reference=kl, reward_mean=0.5) for n, kl in enumerate(kls, 1))
    assert run.changes[-1][2] == "critical"
