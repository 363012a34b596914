"""Impossible advantages: bounds by group size and settings, in rows and in dumps."""

from __future__ import annotations

from dataclasses import replace
from statistics import fmean, pstdev, stdev

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grpo_watch.detectors.reward.advantages import bound
from grpo_watch.engine.records import Scalar
from tests.support.detecting import Watched
from tests.support.records import a_batch, a_group, row

RULE = "advantage-out-of-bounds"


@given(st.lists(st.integers(-50, 50), min_size=2, max_size=64).filter(lambda rewards: len(set(rewards)) > 1))
def test_no_group_gives_more(rewards: list[int]) -> None:
    """Whatever the rewards, with the population's deviation or the sample's."""
    for deviation in (pstdev(rewards), stdev(rewards)):
        largest = max(abs(reward - fmean(rewards)) / deviation for reward in rewards)
        assert largest <= bound(len(rewards)) * (1 + 1e-9)


@pytest.mark.parametrize(
    ("settings", "fires"),
    [
        ({"scale_rewards": "group"}, True),
        ({"scale_rewards": True}, True),  # verl and NeMo-RL
        ({"scale_rewards": "batch"}, False),
        ({"scale_rewards": False}, False),
        ({"scale_rewards": "group", "leave_one_out": True}, False),
        ({}, False),
    ],
)
def test_settings_decide_what_is_impossible(settings: dict[str, Scalar], fires: bool) -> None:  # noqa: FBT001
    """An advantage of 9 in a group of eight, whose bound is 2.65."""
    run = Watched(RULE, num_generations=8, **settings).feed(row(1, advantage_max=9.0, advantage_min=-1.0))
    assert bool(run.changes) is fires


def test_without_a_bound_its_headline_names_none() -> None:
    run = Watched(RULE, num_generations=8, scale_rewards="group", leave_one_out=True)
    assert run.feed(row(1, advantage_max=900.0, advantage_min=-1.0)).headline == "An advantage is far too large"


def test_why_it_can_not_tell() -> None:
    run = Watched(RULE, scale_rewards="group").feed(row(1, advantage_max=9.0, advantage_min=-1.0))
    assert run.blind_reason.endswith("or the group size (num_generations)")
    run = Watched(RULE, scale_rewards="none").feed(row(1, advantage_max=9.0, advantage_min=-1.0))
    assert run.blind_reason == "no group's deviation divides advantages"


def test_a_group_of_one_is_another_fault() -> None:
    """verl neither centres nor divides it: its advantage is the reward."""
    run = Watched(RULE, scale_rewards=True, num_generations=1).feed(row(1, advantage_max=9.0, advantage_min=-1.0))
    assert run.changes == []


def test_dumped_advantages() -> None:
    """Groups of four: at most 1.73."""
    scores = {"r": (0.0, 0.0, 0.0, 1.0), "advantage": (-0.58, None, -0.58, 1.9)}
    group = a_group((0, 1, 2, 3), "a", rewards=scores)
    run = Watched(RULE, scale_rewards="group").feed(replace(a_batch(3), groups=(group,)))
    assert run.changes == [("firing", 3, "warning")]
    assert run.said[-1].reading.evidence["advantage"] == 1.9


def test_a_dump_may_hold_a_part_of_each_group() -> None:
    """Two of sixteen: 3.2 is below 3.87."""
    group = a_group((0, 1), "a", rewards={"r": (1.0, 0.0), "advantage": (3.2, -0.3)})
    run = Watched(RULE, scale_rewards="group", num_generations=16).feed(replace(a_batch(3), groups=(group,)))
    assert run.changes == []


@pytest.mark.parametrize("scale", [{"scale_rewards": "none"}, {}, {"scale_rewards": "batch"}])
@pytest.mark.parametrize(("penalty", "severity"), [({}, "info"), ({"beta": 0.0}, "info"), ({"beta": 0.04}, "warning")])
def test_rewards_of_a_million_that_nothing_divides(
    scale: dict[str, Scalar], penalty: dict[str, Scalar], severity: str
) -> None:
    """Whatever the settings say, no deviation gives 600,000; and 900 is a reward of another scale."""
    run = Watched(RULE, **scale, **penalty)
    run.feed(row(1, advantage_max=900.0, advantage_min=-900.0))
    assert run.changes == []
    run.feed(row(2, advantage_max=6e5, advantage_min=-3e5))
    assert run.changes == [("firing", 2, severity)]
    assert ("KL" in run.said[-1].reading.message) is (severity == "warning")
    assert run.headline == "Advantages are not scaled"
