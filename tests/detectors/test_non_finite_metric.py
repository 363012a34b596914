"""NaN, infinity and null in core metrics."""

from __future__ import annotations

import math

import pytest

from grpo_watch.engine.records import EventKind, RunConfig, RunEvent
from tests.support.detecting import Watched
from tests.support.records import row

RULE = "non-finite-metric"
NAN, INF = math.nan, math.inf


@pytest.mark.parametrize("value", [NAN, INF, -INF, None])
@pytest.mark.parametrize("metric", ["loss", "grad_norm", "kl_reference", "entropy", "reward_mean"])
def test_each_core_metric_in_each_way(metric: str, value: float | None) -> None:
    """One row is a warning that names metric and value."""
    run = Watched(RULE).feed(row(1, **{metric: 1.0}), row(2, **{metric: value}))
    assert run.changes == [("firing", 2, "warning")]
    assert metric in run.said[-1].reading.message


def test_twice_in_a_row_is_critical_and_a_finite_value_ends_it() -> None:
    """The escalation is reported as a second firing."""
    values = [0.5, NAN, NAN, 0.5, 0.5]
    run = Watched(RULE).feed_all(row(s, grad_norm=v) for s, v in enumerate(values, 1))
    assert run.changes == [("firing", 2, "warning"), ("firing", 3, "critical"), ("resolved", 4, "critical")]


def test_two_metrics_by_turns_do_not_persist() -> None:
    """Each of them recovered in between."""
    run = Watched(RULE).feed(row(1, loss=NAN, entropy=1.0), row(2, loss=1.0, entropy=NAN))
    assert run.changes == [("firing", 1, "warning")]


def test_rows_that_lack_the_metric_neither_end_nor_extend_it() -> None:
    """Another channel's finite keys for the same step must not hide that grad_norm stays NaN."""
    run = Watched(RULE)
    for step in (1, 2):
        run.feed(row(step, grad_norm=NAN), row(step, supplement=True, entropy=1.0))
    assert run.changes == [("firing", 1, "warning"), ("firing", 2, "critical")]
    run.feed(row(3, reward_mean=0.1), row(4, grad_norm=0.1))
    assert run.changes[-1] == ("resolved", 4, "critical")


def test_a_crash_right_after_is_critical() -> None:
    """The usual end of a NaN gradient; a crash after healthy rows is another rule's."""
    crash = RunEvent("log", EventKind.TRACEBACK, text="RuntimeError: probability tensor contains nan")
    run = Watched(RULE).feed(row(1, grad_norm=NAN), crash)
    assert run.changes == [("firing", 1, "warning"), ("firing", 1, "critical")]
    assert Watched(RULE).feed(row(1, grad_norm=0.5), crash).changes == []


@pytest.mark.parametrize(("dtype", "severity"), [("float16", "info"), ("bfloat16", "warning")])
def test_the_loss_scaler_of_fp16_skips_steps(dtype: str, severity: str) -> None:
    """Only for the gradient; a NaN loss is a warning in any precision."""
    run = Watched(RULE, dtype=dtype).feed(row(1, grad_norm=INF, loss=0.1))
    assert run.changes == [("firing", 1, severity)]
    assert Watched(RULE, dtype=dtype).feed(row(1, grad_norm=INF, loss=NAN)).changes == [("firing", 1, "warning")]


def test_what_it_does_not_read() -> None:
    """A single reward function, lengths, and rows without core metrics."""
    run = Watched(RULE).feed(row(1, **{"reward_function_mean[math]": NAN}), row(2, completion_length_mean=NAN))
    assert run.said == []
    assert not run.monitor.evaluated


def test_the_search_for_a_loss_scale_is_explained() -> None:
    """16 halvings at most; after a finite gradient, without fp16, or with a NaN loss two rows are critical."""
    found = Watched(RULE, fp16=True).feed_all(row(s, grad_norm=INF if s <= 16 else 0.5) for s in range(1, 20))
    assert found.changes == [("firing", 1, "info"), ("resolved", 17, "info")]
    never = Watched(RULE, fp16=True).feed_all(row(s, grad_norm=INF) for s in range(1, 20))
    assert never.changes == [("firing", 1, "info"), ("firing", 17, "critical")]
    late = Watched(RULE, fp16=True).feed(row(1, grad_norm=0.5), row(2, grad_norm=INF), row(3, grad_norm=INF))
    assert late.changes == [("firing", 2, "info"), ("firing", 3, "critical")]
    assert Watched(RULE).feed(row(1, grad_norm=INF), row(2, grad_norm=INF)).changes[-1] == ("firing", 2, "critical")
    both = Watched(RULE, fp16=True).feed(row(1, grad_norm=INF, loss=NAN), row(2, grad_norm=INF, loss=NAN))
    assert both.changes == [("firing", 1, "warning"), ("firing", 2, "critical")]


def test_a_null_before_the_first_update_was_not_measured() -> None:
    """Row 0 of a loop that evaluates first; a NaN there, or a null in row 1, is one."""
    assert Watched(RULE).feed(row(0, loss=None, reward_mean=None), row(1, loss=0.5)).changes == []
    assert Watched(RULE).feed(row(0, loss=NAN)).changes == [("firing", 0, "warning")]
    assert Watched(RULE).feed(row(0, loss=None), row(1, loss=None)).changes == [("firing", 1, "warning")]


def test_an_own_loop_writes_null_for_what_it_does_not_measure() -> None:
    """Not so a framework's null, a NaN, or a null on rows without a number that sound weights give."""
    unmeasured = [row(s, loss=0.5, reward_mean=0.2, grad_norm=None) for s in range(1, 6)]
    assert Watched(RULE).feed_all(unmeasured).changes == []
    broken = [("firing", 1, "warning"), ("firing", 2, "critical")]
    assert Watched(RULE).feed(RunConfig("trl", None, {}), *unmeasured).changes == broken
    late = Watched(RULE).feed(unmeasured[0], row(2, loss=0.5, grad_norm=NAN))
    assert late.changes == [("firing", 2, "warning")]
    dead = Watched(RULE).feed_all(row(s, loss=None, grad_norm=None, reward_mean=0.0) for s in range(1, 6))
    assert dead.changes == broken
    unscored = Watched(RULE).feed_all(row(s, loss=0.5, reward_mean=None) for s in range(1, 6))
    assert unscored.changes == broken


def test_an_own_loop_writes_null_for_the_loss_of_a_skipped_step() -> None:
    """The first number after a null shows it; NaN weights give none any more."""
    losses = [0.5, None, 0.4, None, None, None, 0.3]
    run = Watched(RULE).feed_all(row(s, loss=loss, reward_mean=1.0) for s, loss in enumerate(losses, 1))
    assert run.changes == [("firing", 2, "warning"), ("resolved", 3, "warning")]


@pytest.mark.parametrize(("kl", "changes"), [(4e20, [("firing", 2, "warning")]), (1e14, [])])
def test_a_mean_that_one_overflowing_token_decides_is_as_good_as_infinite(
    kl: float, changes: list[tuple[str, int, str]]
) -> None:
    """exp(47) is a number, but its square is none in float32; a KL that a run may survive is below the bar."""
    assert Watched(RULE).feed(row(1, kl_reference=0.01), row(2, kl_reference=kl)).changes == changes


def test_an_overflow_after_a_long_calm_is_seen() -> None:
    """Forty usual rows let the rule rest."""
    run = Watched(RULE).feed_all(row(n, kl_reference=0.01) for n in range(1, 41))
    assert run.feed(row(41, kl_reference=4e20)).changes == [("firing", 41, "warning")]


def test_means_of_logits_may_be_nan() -> None:
    """A padded vocabulary holds infinities; a critic's loss may not."""
    for key, changes in (("logits/rejected", []), ("critic/vf_loss", [("firing", 1, "warning")])):
        assert Watched(RULE).feed(row(1, loss=0.5)._replace(raw={key: NAN})).changes == changes


def test_a_loss_whose_name_holds_such_a_word_may_not() -> None:
    for key in ("shared_loss", "policy/shared_expert_loss", "refraction_loss"):
        run = Watched(RULE).feed_all(row(n, loss=0.5, grad_norm=0.4)._replace(raw={key: NAN}) for n in range(1, 6))
        assert run.changes == [("firing", 1, "warning"), ("firing", 2, "critical")], key


def test_a_share_of_nothing_may_be_nan() -> None:
    for key in ("actor/prefix_loss_share", "actor/prefix_loss_contribution", "policy/kl_frac"):
        run = Watched(RULE).feed_all(row(n, loss=0.5, grad_norm=0.4)._replace(raw={key: NAN}) for n in range(1, 6))
        assert run.changes == [], key
