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
    *("lora_norm", "policy_norm", "weight_norm", "norm", "policy_gradient", "grad_mean", "kl_term", "lora_r"),
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
        ("rewards/mean", "reward_mean"),
        ("reward_std_mean", SPREAD),
        ("mean_group_std", "reward_group_std"),
        ("dead_groups_frac", "reward_zero_std_ratio"),
        ("zero_var_fraction", "reward_zero_std_ratio"),
        ("kl_from_base", "kl_reference"),
        ("per_token_kl", "kl_reference"),
        ("kl_est_k3", "kl_reference"),
        ("D_KL", "kl_reference"),
        ("KLD", "kl_reference"),
        ("total_norm", "grad_norm"),
        ("pre_clip_grad_norm", "grad_norm"),
        ("grad_l2_norm", "grad_norm"),
        ("lora_grad_norm", "grad_norm"),
        ("hit_max_len_frac", "completion_truncated_ratio"),
        ("frac_no_eos", "completion_truncated_ratio"),
        ("avg_resp_len", "completion_length_mean"),
        ("ent", "entropy"),
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
    """A rate above 1 is in percent; what it gave before is taken back from the list."""
    guesses, pair = CheckedGuesses(), [("filtered_group_rate", "reward_zero_std_ratio")]
    first: dict[str, float | None] = {}
    guesses.add(pair, {"filtered_group_rate": 1.0}, first)
    assert first == {"reward_zero_std_ratio": 1.0}
    assert guesses.take_news() == {"filtered_group_rate": "reward_zero_std_ratio"}
    for value in (7.0, 0.5):
        later: dict[str, float | None] = {}
        guesses.add(pair, {"filtered_group_rate": value}, later)
        assert later == {}
    assert guesses.take_news() == {}


@pytest.mark.parametrize("key", ["truncated", "filtered_groups"])
def test_names_of_shares_that_frameworks_log_need_no_proof(key: str) -> None:
    """Every completion is cut, or every group dropped, from a step on."""
    guesses, found = CheckedGuesses(), dict[str, float | None]()
    guesses.add([(key, guess(key) or "")], {key: 1.0}, found)
    assert list(found.values()) == [1.0]


def test_an_accuracy_that_was_not_taken_is_no_reward_that_is_nan() -> None:
    found = dict[str, float | None]()
    CheckedGuesses().add([("accuracy", "reward_mean")], {"accuracy": math.nan}, found)
    assert found == {}


@pytest.mark.parametrize(
    ("values", "read"),
    [([1.0, 0.0, 3.0, 0.5], []), ([0.0, 1.0, 0.125, 1.0], [0.125, 1.0])],
    ids=["a count", "a share"],
)
def test_a_share_that_is_not_called_one_is_proved_by_its_values(values: list[float], read: list[float]) -> None:
    """One dead group of eight is not all of them."""
    guesses, found = CheckedGuesses(), dict[str, float | None]()
    rows = list[float | None]()
    for value in values:
        found.clear()
        guesses.add([("dead_groups", "reward_zero_std_ratio")], {"dead_groups": value}, found)
        rows += found.values()
    assert rows == read


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
        (("loss", "kl", "mean_r"), "mean_r"),
        (("loss", "kl", "R", "task_reward"), "task_reward"),
        (("loss", "reward_std", "solve_rate"), "solve_rate"),
        (("loss", "kl", "avg_len", "train/accuracy", "eval/accuracy"), "train/accuracy"),
        (("loss", "kl", "accuracy"), None),
        (("loss", "truncated", "accuracy"), None),
        (("loss", "kl", "lora_r"), None),
        (("loss", "kl", "accuracy", "reward"), "reward"),
        (("loss", "clip_frac", "accuracy", "pass_rate"), None),
        (("loss", "entropy", "grad_norm", "accuracy"), None),
        (("loss", "kl", "mean_token_accuracy"), None),
    ],
)
def test_what_stands_for_the_reward_beside_kl(keys: tuple[str, ...], reward: str | None) -> None:
    assert only_reward(keys, keys) == reward
