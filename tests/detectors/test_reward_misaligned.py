"""Scores beside the wrong completions: another order, another length, sums that are no zero."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from random import Random

import pytest

from grpo_watch.engine.records import CompletionSummary, RunConfig
from tests.support.detecting import Watched
from tests.support.records import a_batch, a_group, row

RULE = "reward-misaligned"
RIGHT, TURNED = (-1.5, -0.5, 0.5, 1.5), (1.5, 0.5, -0.5, -1.5)
REWARDS = (0.0, 1.0, 2.0, 3.0)


def batch(step: int, advantage: tuple[float, ...], groups: int = 4, **changes: object) -> CompletionSummary:
    """Groups of four rising rewards: six clear pairs each."""
    scores = {"f": REWARDS, "advantage": advantage}
    made = tuple(a_group((0, 1, 2, 3), f"{step}-{at}", rewards=scores) for at in range(groups))
    return replace(a_batch(step), groups=made, **changes)


def test_the_other_way_round_for_three_batches() -> None:
    run = Watched(RULE).feed_all(batch(step, TURNED) for step in range(1, 4))
    assert run.changes == [("firing", 3, "warning")]
    assert run.said[-1].first_step == 1
    assert run.said[-1].reading.evidence == {"against_ratio": 1.0, "pairs": 24, "groups": 4}
    assert run.feed(batch(4, RIGHT)).changes[-1] == ("resolved", 4, "warning")


def test_right_ones_are_quiet() -> None:
    assert Watched(RULE).feed_all(batch(step, RIGHT) for step in range(1, 9)).said == []


def test_one_such_batch_between_others_is_nothing() -> None:
    mixed = [batch(step, TURNED if step % 3 else RIGHT) for step in range(1, 9)]
    assert Watched(RULE).feed_all(mixed).changes == []


def test_few_pairs_are_chance() -> None:
    """Three groups: 18 pairs, 20 are needed."""
    assert Watched(RULE).feed_all(batch(step, TURNED, groups=3) for step in range(1, 9)).changes == []


def test_sums_are_an_info() -> None:
    """0.1 + 0.2 + 0.3 + 0.4 in each group, in the right order: right for REINFORCE++, not for GRPO."""
    run = Watched(RULE).feed_all(batch(step, (0.1, 0.2, 0.3, 0.4)) for step in range(1, 6))
    assert [(state, severity) for state, _, severity in run.changes] == [("firing", "info")]
    assert run.said[-1].reading.key == "sums"
    assert "4 of 4 groups do not sum to 0" in run.said[-1].reading.message


def test_a_column_of_another_length_is_recognised_by_name() -> None:
    run = Watched(RULE).feed_all(batch(step, RIGHT, odd=("length_reward",)) for step in range(1, 4))
    assert [(state, severity) for state, _, severity in run.changes] == [("firing", "warning")]
    assert run.said[-1].reading.message.startswith("length_reward: the number of values differs")


def test_without_advantages_it_is_blind() -> None:
    run = Watched(RULE).feed(a_batch(1, (0, 1)))
    assert run.said == []
    assert "no dump holds advantages" in run.blind_reason


def weighted(step: int, *weights: float, moved: int = 0) -> CompletionSummary:
    """Four groups of six completions, scored by a binary function and two others; advantages may be moved by a row."""
    groups = []
    for at in range(4):
        rng = random.Random(f"{step} {at}")
        scores = [[float(rng.random() < 0.5), rng.random(), float(rng.randrange(3))] for _ in range(6)]
        totals = [sum(weight * score for weight, score in zip(weights, each, strict=False)) for each in scores]
        advantage = [total - sum(totals) / 6 for total in totals]
        columns = {name: tuple(each[at] for each in scores) for at, name in enumerate("abc"[: len(weights)])}
        columns["advantage"] = (*advantage[moved:], *advantage[:moved])
        groups.append(a_group(tuple(range(6)), f"{step}-{at}", rewards=columns))
    return replace(a_batch(step), groups=tuple(groups))


@pytest.mark.parametrize("weights", [(1.0, -0.5), (1.0, -2.0, 0.5), (0.5, -0.5, -1.0), (0.0, -0.1), (1.0, 2.0, 3.0)])
def test_negative_weights_are_no_lost_order(weights: tuple[float, ...]) -> None:
    """``reward_weights`` 1 and -0.5 are a punished length, which TRL allows; one row further on, the order is lost."""
    assert Watched(RULE).feed_all(weighted(step, *weights) for step in range(1, 9)).changes == []
    lost = Watched(RULE).feed_all(weighted(step, *weights, moved=1) for step in range(1, 30))
    assert ("firing", "warning") in {(state, severity) for state, _, severity in lost.changes}


def test_a_wrong_sign_beside_a_constant_reward() -> None:
    """Accuracy and a format that is always right."""
    scores = {"accuracy": REWARDS, "format": (1.0,) * 4, "advantage": TURNED}
    batches = [
        replace(each, groups=tuple(replace(group, rewards=scores) for group in each.groups))
        for each in (batch(step, TURNED) for step in range(1, 4))
    ]
    assert Watched(RULE).feed_all(batches).changes == [("firing", 3, "warning")]


def test_all_weights_negative_is_a_wrong_sign() -> None:
    run = Watched(RULE).feed_all(weighted(step, -1.0, -0.5) for step in range(1, 9))
    assert [(state, severity) for state, _, severity in run.changes] == [("firing", "warning")]
    said = Watched(RULE, reward_weights="-1 -0.5")
    assert said.feed_all(weighted(step, -1.0, -0.5) for step in range(1, 9)).changes == []


def test_an_order_that_is_lost_is_reported_whatever_the_weights() -> None:
    lost = Watched(RULE, reward_weights="1 -0.5 0")
    lost.feed_all(weighted(step, 1.0, -0.5, 0.0, moved=1) for step in range(1, 30))
    assert ("firing", "warning") in {(state, severity) for state, _, severity in lost.changes}


def test_rows_that_a_console_showed_are_no_evidence() -> None:
    """Their scores are rounded, and left out."""
    bare = replace(a_batch(1), groups=(a_group((0, 1, 2, 3), "1", rewards={}),), by_prompt=True)
    assert Watched(RULE).feed(bare).blind_reason == "no dump holds advantages and rewards"


def test_sums_are_a_warning_in_trl_which_centres_every_group() -> None:
    run = Watched(RULE).feed(RunConfig("trl", None, {}))
    run.feed_all(batch(step, (0.1, 0.2, 0.3, 0.4)) for step in range(1, 6))
    assert run.changes == [("firing", 5, "warning")]
    assert run.headline == "Advantages are not centred in their groups"


def scored(step: int, scores: Callable[[list[int], list[int]], list[float]]) -> CompletionSummary:
    """Two groups of eight; ``scores`` of their lengths, those of the batch before, by place in the batch."""
    lengths, before = ([Random(f"{at} {n}").randrange(20, 200) for n in range(16)] for at in (step, step - 1))
    rewards = scores(lengths, before)
    cut = [(tuple(lengths[at : at + 8]), tuple(rewards[at : at + 8])) for at in (0, 8)]
    made = [a_group(tuple(range(8)), f"{step}-{own}", lengths=own, rewards={"f": scored}) for own, scored in cut]
    return replace(a_batch(step), groups=tuple(made))


def noise(length: int) -> float:
    return Random(length).uniform(0.0, 5.0)


@pytest.mark.parametrize(
    ("scores", "says"),
    [
        (lambda lengths, _: [lengths[-1], *lengths[:-1]], "fit the completion before"),
        (lambda lengths, _: [*lengths[1:], lengths[0]], "fit the completion after"),
        (lambda _, before: before, "fit the same place in the batch before"),
    ],
)
def test_rewards_of_other_texts(scores: Callable[[list[int], list[int]], list[float]], says: str) -> None:
    """Every score is right, and another completion's."""
    run = Watched(RULE).feed_all(scored(step, scores) for step in range(1, 60))
    assert [(state, shown) for state, _, shown in run.changes] == [("firing", "warning")]
    assert says in run.said[-1].reading.message


@pytest.mark.parametrize(
    "scores",
    [
        lambda lengths, _: lengths,
        lambda lengths, before: [one - 0.5 * other for one, other in zip(lengths, before, strict=True)],
        lambda lengths, _: [Random(f"{at} {length}").random() for at, length in enumerate(lengths)],
        lambda lengths, _: [float(at % 8 == 0) + length / 1e3 for at, length in enumerate(lengths)],
        lambda lengths, _: [*sorted(map(noise, lengths[:8])), *sorted(map(noise, lengths[8:]))],
        lambda lengths, _: [at % 8 + noise(length) for at, length in enumerate(lengths)],
    ],
)
def test_rewards_of_their_own_texts(scores: Callable[[list[int], list[int]], list[float]]) -> None:
    """Also those that no length explains, an expert in the first place, hints by place, and a sorted dump."""
    assert Watched(RULE).feed_all(scored(step, scores) for step in range(1, 200)).changes == []


def test_one_batch_again_and_again_counts_once() -> None:
    """Sixteen completions whose rewards happen to lie nearer to the lengths before them; each step draws them again."""
    by_chance = scored(1, lambda lengths, _: [lengths[-1], *lengths[:-1]])
    groups = tuple(replace(group, marks=tuple(range(8 * at, 8 * at + 8))) for at, group in enumerate(by_chance.groups))
    batches = [replace(by_chance, step=step, groups=groups) for step in range(1, 100)]
    assert Watched(RULE).feed_all(batches).changes == []


def test_a_new_attempt_begins_with_new_sums() -> None:
    """Rewards of the completions before: two batches too few before a restart, and as many after it."""
    batches = [scored(step, lambda lengths, _: [lengths[-1], *lengths[:-1]]) for step in range(1, 60)]
    few = Watched(RULE).feed_all(batches).changes[0][1] - 2
    run = Watched(RULE).feed_all(batches[:few]).feed(row(few + 1, attempt=2, reward_mean=0.1))
    assert run.feed_all(batches[few : few + 2]).changes == []
    assert run.feed_all(batches[few + 2 :]).changes != []


@pytest.mark.parametrize("rule", [RULE, "advantage-arithmetic", "advantage-out-of-bounds", "reward-not-finite"])
def test_scores_near_the_largest_float_break_nothing(rule: str) -> None:
    scores = {"f": (-1.7e308, 1.7e308, 0.0, 1.0), "advantage": (-1e308, 1e308, 0.0, 1.0)}
    made = tuple(a_group((0, 0, 1, 2), str(at), rewards=scores) for at in range(4))
    run = Watched(rule, scale_rewards="group").feed_all(replace(a_batch(s), groups=made) for s in range(1, 9))
    assert run.monitor.broken is None
