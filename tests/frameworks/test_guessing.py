"""Keys that no data file knows: what their words are taken for, and which values refute that."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grpo_watch.frameworks.guessing import SPREAD, WORDS, CheckedGuesses, fits, guess, names_training, only_reward

MEANT = {
    "clip_fraction": "policy_clip_ratio",
    "kl_divergence": "kl_reference",
    "mean_completion_len": "completion_length_mean",
    "zero_adv_fraction": "reward_zero_std_ratio",
    "avg_reward": "reward_mean",
    "groups_filtered": "reward_zero_std_ratio",
    "completion_length": "completion_length_mean",
    "frac_reward_zero_std": "reward_zero_std_ratio",
    "grad_norm": "grad_norm",
    "learning_rate": "learning_rate",
    "std_reward": SPREAD,
    "truncated_fraction": "completion_truncated_ratio",
    "response_length_mean": "completion_length_mean",
}
NOTHING = (
    *("kl_coef", "reward_weight", "val/reward", "eval_reward", "critic/grad_norm", "value_loss", "reward_max"),
    *("accuracy", "elapsed", "teacher_kl", "old_kl", "reward_count", "gpu_util", "num_completion_tokens", "loss_scale"),
    *("group_reward_solved_per_group_mean", "rewards_tokens_mean"),
)


@st.composite
def spelled(draw: st.DrawFn) -> tuple[str, str]:
    """A known name in any case, with any separators and any namespace before it."""
    name = draw(st.sampled_from(sorted(MEANT)))
    separator = draw(st.sampled_from(["_", "-", "/", ".", " "]))
    prefix = draw(st.sampled_from(["", "train/", "Train.", "metrics_", "rollout/", "log-", "train/metrics/"]))
    case = draw(st.sampled_from([str.lower, str.upper, str.title, str]))
    return case(prefix + name.replace("_", separator)), MEANT[name]


@given(spelled())
def test_case_separators_and_namespaces_change_nothing(pair: tuple[str, str]) -> None:
    key, metric = pair
    assert guess(key) == metric


def test_camel_case_is_words() -> None:
    assert guess("meanCompletionLength") == "completion_length_mean"
    assert guess("clipFraction") == "policy_clip_ratio"


@pytest.mark.parametrize(
    ("key", "metric"),
    [
        ("env/all/reward/total", "reward_mean"),
        ("reward/mean", "reward_mean"),
        ("critic/score/mean", "reward_mean"),
        ("dapo/groups_filtered", "reward_zero_std_ratio"),
        ("rewards_format_mean", "reward_function_mean[format]"),
        ("train.rewards.tag_count.std", "reward_function_std[tag_count]"),
        ("KL_ref", "kl_reference"),
        ("Seq. Length", "completion_length_mean"),
    ],
)
def test_names_seen_in_own_loops(key: str, metric: str) -> None:
    assert guess(key) == metric


@pytest.mark.parametrize("key", NOTHING)
def test_other_quantities_are_not_guessed(key: str) -> None:
    assert guess(key) is None


@given(st.sampled_from(sorted(WORDS.ranges)), st.floats(allow_nan=False, allow_infinity=False))
def test_a_value_out_of_range_gives_no_metric(metric: str, value: float) -> None:
    low, high = WORDS.ranges[metric]
    values: dict[str, float | None] = {}
    spread = CheckedGuesses().add([("key", metric)], {"key": value}, values)
    assert (bool(values) or spread == "key") is (low <= value <= high)


def test_one_wrong_value_refutes_a_key_for_good() -> None:
    """A count that began as 0 and 1 is no share; what it gave before is taken back from the list."""
    guesses, pair = CheckedGuesses(), [("groups_filtered", "reward_zero_std_ratio")]
    first: dict[str, float | None] = {}
    guesses.add(pair, {"groups_filtered": 1.0}, first)
    assert first == {"reward_zero_std_ratio": 1.0}
    assert guesses.take_news() == {"groups_filtered": "reward_zero_std_ratio"}
    for value in (7.0, 0.5):
        later: dict[str, float | None] = {}
        guesses.add(pair, {"groups_filtered": value}, later)
        assert later == {}
    assert guesses.take_news() == {}


def test_a_number_that_is_not_finite_refutes_nothing() -> None:
    assert all(fits("policy_clip_ratio", value) for value in (math.nan, math.inf))


def test_a_loss_alone_names_no_training() -> None:
    assert names_training(["loss", "epoch", "step"]) == frozenset()
    assert names_training(["loss", "avg_reward"]) == {"reward_mean"}


def test_a_ratio_of_policies_is_not_the_rollouts() -> None:
    """A bare ``ratio`` is too little to know whose it is."""
    assert [guess(key) for key in ("policy_ratio", "train/ratio", "ratio")] == [None, None, None]


@pytest.mark.parametrize(
    ("keys", "reward"),
    [
        (("loss", "pg", "kl", "R"), "R"),
        (("loss", "pg", "R"), None),
        (("loss", "kl", "R", "task_reward"), "task_reward"),
    ],
    ids=["a row of an update", "R may be anything", "another reward"],
)
def test_a_lone_r_beside_kl_is_the_reward(keys: tuple[str, ...], reward: str | None) -> None:
    assert only_reward(keys, keys) == reward
