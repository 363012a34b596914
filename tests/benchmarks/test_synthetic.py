"""The generator of synthetic runs, and a small sample of what docs/robustness.md measures."""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path

import pytest

from benchmarks.robustness import Outcome, outcome, wilson
from benchmarks.synthetic.runs import KINDS, faulty, healthy
from grpo_watch.engine.records import RawRow, Tick
from grpo_watch.rules.packs import load_rules

PAGE = Path(__file__).resolve().parents[2] / "docs" / "robustness.md"


def test_a_seed_gives_the_same_run_for_ever() -> None:
    assert healthy(3).items == healthy(3).items
    assert healthy(3).items != healthy(4).items
    assert faulty("shared-seed", 1).items == faulty("shared-seed", 1).items


@pytest.mark.slow
def test_rows_come_in_the_order_of_their_steps_within_an_attempt() -> None:
    """Steps rise by the logging interval, a resumed run begins again above its checkpoint, one tick is last."""
    for seed in range(20):
        run = healthy(seed)
        assert run.shape is not None
        rows = [item for item in run.items if isinstance(item, RawRow)]
        for before, after in pairwise(rows):
            if before.segment == after.segment:
                assert (after.step or 0) - (before.step or 0) == run.shape.logging_steps
        assert isinstance(run.items[-1], Tick)


@pytest.mark.slow
def test_a_row_that_uses_a_batch_again_has_no_reward() -> None:
    runs = [healthy(seed) for seed in range(40)]
    reusing = [run for run in runs if run.shape and run.shape.every == 2 and run.shape.logging_steps == 1]
    assert reusing
    for run in reusing:
        rows = [item for item in run.items if isinstance(item, RawRow)]
        assert all(("reward" in row.values) == ((row.step or 0) % 2 == 1) for row in rows)
        assert all("grad_norm" in row.values for row in rows)


@pytest.mark.slow
def test_no_healthy_run_is_critical() -> None:
    sample = [outcome("", seed) for seed in range(40)]
    assert [o.seed for o in sample if any(severity == "critical" for _, severity in o.named)] == []


def latest() -> dict[str, int]:
    """The worst delay of each kind as ``make robustness`` measured it over more seeds; "n/a": -1."""
    table = re.findall(
        r"^\| ([a-z-]+) \| \d+ of \d+ \|[^|]*\|([^|]*)\|", PAGE.read_text(encoding="utf-8"), re.MULTILINE
    )
    return {kind: int(delays.rpartition(",")[2]) if "," in delays else -1 for kind, delays in table}


def test_the_page_measures_every_kind() -> None:
    """After a new fault: ``make robustness``."""
    assert latest().keys() == set(KINDS)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_of_fault_is_found_in_time(kind: str) -> None:
    """No later than docs/robustness.md says: a rule that fires later is no accident."""
    sample: list[Outcome] = [outcome(kind, seed) for seed in range(2)]
    assert all(o.detected for o in sample), [sorted(o.named) for o in sample]
    assert max((o.delay for o in sample if o.delay is not None), default=-1) <= latest()[kind]


@pytest.mark.slow
def test_every_shipped_rule_has_a_fault_that_it_names_first() -> None:
    """Or it stands in no table. Only verl logs cut prompts, its rows are not made."""
    first = {faulty(kind, 0).rules[0] for kind in KINDS}
    without = {rule.name for rule in load_rules([])} - first
    assert without == {"prompts-cut"}, "add a fault to benchmarks/synthetic/ that the rule names first"


def test_wilsons_interval() -> None:
    """None of 1,000: 0 to z²/(n + z²) = 3.8415/1003.8415; all of 20 mirrors none of 20."""
    assert wilson(0, 1000) == pytest.approx((0.0, 0.0038268), abs=1e-6)
    assert wilson(20, 20)[0] == pytest.approx(1 - wilson(0, 20)[1])
