"""How much a policy should have moved: the applied learning rate, summed where there was a signal."""

from __future__ import annotations

import pytest

from grpo_watch.engine.evidence import no_signal_ratio
from grpo_watch.engine.learning import ARITHMETIC_FLOOR_LIKELY, LearningSoFar
from grpo_watch.engine.records import MetricRow
from tests.support.records import row


def after(*rows: MetricRow) -> LearningSoFar:
    """The sum after these rows."""
    learning = LearningSoFar()
    for each in rows:
        learning.add_row(each, no_signal_ratio(each))
    return learning


def test_a_rows_own_update_comes_after_its_metrics() -> None:
    """Row 1 shows the untouched policy, row 3 what the updates of rows 1 and 2 made of it."""
    rows = [row(step, learning_rate=1e-6, reward_zero_std_ratio=0.0) for step in (1, 2, 3)]
    assert [after(*rows[:count]).total for count in (1, 2, 3)] == pytest.approx([0.0, 1e-6, 2e-6])


def test_only_the_share_with_a_signal_moves_the_policy() -> None:
    rows = [row(1, learning_rate=1e-6, reward_zero_std_ratio=0.75), row(2, learning_rate=1e-6)]
    assert after(*rows).total == pytest.approx(0.25e-6)
    assert after(*rows).signal == 0.25


def test_rows_that_reuse_a_generation_keep_its_signal() -> None:
    """Row 2 has no reward metrics: it trains again on the batch of row 1."""
    rows = [row(1, learning_rate=1e-6, reward_zero_std_ratio=1.0), row(2, learning_rate=1e-6), row(3)]
    assert after(*rows).total == 0.0


def test_a_rate_in_a_further_row_of_its_step_counts() -> None:
    """A logger that writes a step in two calls: the rate, the groups and the entropy come second."""
    learning, others = LearningSoFar(), {"learning_rate": 1e-6, "reward_zero_std_ratio": 0.5, "entropy": 0.4}
    for step in (1, 3, 4):
        learning.add_row(row(step), None)
        further = row(step, **others)._replace(supplement=True)
        learning.complete(further, no_signal_ratio(further))
        learning.complete(further, no_signal_ratio(further))  # another channel says the same
    assert learning.total == pytest.approx(3 * 0.5e-6)  # 1, 2 and 3; 4 comes after its metrics
    assert (learning.rate_known, learning.floor) == (True, ARITHMETIC_FLOOR_LIKELY)


def test_a_signal_that_nobody_logs_counts_in_full_and_is_unknown() -> None:
    learning = after(row(1, learning_rate=1e-6), row(2, learning_rate=1e-6))
    assert (learning.total, learning.signal) == (pytest.approx(1e-6), None)


def test_a_row_stands_for_all_steps_since_the_last_one() -> None:
    """Logged every 10 steps: by row 20 the updates of steps 1 (first row) and 11 to 19 are in, as are those of 10."""
    rows = [row(10, learning_rate=1e-6), row(20, learning_rate=1e-6)]
    assert after(*rows).total == pytest.approx(10e-6)


def test_without_a_rate_nothing_is_known() -> None:
    learning = after(row(1), row(2, learning_rate=None), row(3, learning_rate=float("nan")))
    assert (learning.total, learning.rate_known) == (0.0, False)
    assert after(row(1, learning_rate=0.0)).rate_known


def test_the_expected_kl_grows_with_the_square_of_the_sum() -> None:
    """250 (full) or 0.25 (adapter) times the square: 1e-3 summed are 2.5e-4 and 2.5e-7."""
    learning = after(row(1, learning_rate=1e-3), row(2, learning_rate=0.0))
    assert learning.expected_kl(adapter=False) == pytest.approx(2.5e-4)
    assert learning.expected_kl(adapter=True) == pytest.approx(2.5e-7)
