"""What a verdict rests on: rewards, one more area, enough rows; and what is reported where that is missing."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest

from grpo_watch.catalogue import catalogue
from grpo_watch.engine.engine import RunState
from grpo_watch.engine.judgement import early_signs, judge
from grpo_watch.engine.records import (
    ChannelKind,
    CheckpointKind,
    EventKind,
    RawRow,
    Record,
    RunEvent,
    Severity,
    TensorDigest,
    Tick,
)
from grpo_watch.engine.snapshot import RunSnapshot, RunVerdict, caveats
from grpo_watch.pipeline.pipeline import Pipeline
from grpo_watch.report.blindness import headline
from grpo_watch.report.view import shouted
from grpo_watch.rules.packs import load_rules
from tests.support.detecting import SHIPPED, Watched
from tests.support.records import a_batch, a_checkpoint, row

GRPO = {"loss": 0.01, "grad_norm": 0.5, "reward": 0.5, "reward_std": 0.2, "kl": 0.01, "completion_length": 100.0}


def judged(rows: Sequence[Mapping[str, float]], first: int = 1) -> RunSnapshot:
    pipeline = Pipeline("run", load_rules([]), catalogue())
    for step, values in enumerate(rows, first):
        noise = {key: value * (1 + 0.01 * (step % 3)) for key, value in values.items()}
        pipeline.feed(RawRow("log", ChannelKind.JSONL, step, noise))
    pipeline.feed(Tick(1e9, live=False))
    return pipeline.snapshot()


def test_a_reward_and_another_area_may_be_healthy() -> None:
    found = judged([GRPO] * 20)
    assert found.verdict is RunVerdict.HEALTHY
    assert headline(found) == "healthy as far as judged"


def test_without_any_view_of_frozen_weights_nothing_is_healthy_in_words() -> None:
    """No KL, no gradient, no checkpoint: the JSON verdict stays, the headline says what is known."""
    found = judged([{"reward": 0.5, "completion_length": 100.0}] * 20)
    assert found.verdict is RunVerdict.HEALTHY
    assert headline(found).startswith("no finding, ")
    assert headline(found).endswith("judged; frozen weights can't be seen")
    assert shouted(found).startswith("NO FINDING, ")


@pytest.mark.parametrize("rows", [3, 5, 7, 9])
def test_no_healthy_stands_beside_an_early_sign(rows: int) -> None:
    """Every completion is cut off in all rows; the rule needs ten of them."""
    found = judged([GRPO | {"completions/clipped_ratio": 0.97}] * rows)
    assert found.verdict is RunVerdict.TOO_SHORT
    assert "completions-truncated" in {sign.rule for sign in found.judgement.early_signs}


def test_a_sign_ends_where_its_rule_judges() -> None:
    """Row 11 alone is cut off: the rule has judged ten rows, and no sign is left."""
    rows = [GRPO | {"completions/clipped_ratio": 0.1}] * 10 + [GRPO | {"completions/clipped_ratio": 0.95}]
    assert judged(rows).verdict is RunVerdict.HEALTHY


def test_one_row_shows_a_rollout_gap() -> None:
    found = judged([GRPO | {"sampling/importance_sampling_ratio/mean": 3e-7}])
    assert "train-rollout-mismatch" in {sign.rule for sign in found.judgement.early_signs}


def test_a_critical_rule_that_does_not_apply_takes_nothing_from_healthy() -> None:
    """Completions without a rollout engine have no weights that could be stale; what is missing here are weights."""
    found = judged([GRPO] * 20)
    waits = replace(
        found, rules=tuple(rule for rule in found.rules if rule.rule in {"stale-rollout-weights", "kl-explosion"})
    )
    assert [rule.status.value for rule in waits.rules] == ["ok", "blind"]
    assert headline(waits) == "healthy"


def test_a_reward_alone_is_not_evaluable() -> None:
    found = judged([{"loss": 0.01, "reward": 0.5}] * 20)
    assert found.verdict is RunVerdict.NOT_EVALUABLE
    assert found.judgement.reason.startswith("too little was read")


@pytest.mark.parametrize(
    ("keys", "kind"),
    [
        ({"loss": 1.5, "mean_token_accuracy": 0.7, "grad_norm": 1.0}, "supervised fine-tuning"),
        ({"loss": 0.6, "rewards/margins": 0.1, "logps/chosen": -40.0}, "preference training"),
        ({"policy_loss": 0.1, "loss": 0.1, "value_loss": 0.4, "grad_norm": 1.0}, "PPO with a value model"),
    ],
)
def test_another_kind_of_training_is_named(keys: Mapping[str, float], kind: str) -> None:
    found = judged([keys] * 20)
    assert found.verdict is RunVerdict.NOT_EVALUABLE
    assert kind in found.judgement.reason


def test_an_exit_code_of_a_log_without_rows_is_no_verdict() -> None:
    pipeline = Pipeline("run", load_rules([]), catalogue())
    pipeline.feed(RunEvent("log", EventKind.CRASH_SUMMARY, text="wandb stored the exit code 1"))
    pipeline.feed(Tick(1e9, live=False))
    found = pipeline.snapshot()
    assert found.verdict is RunVerdict.NOT_EVALUABLE
    assert [(finding.rule, finding.severity) for finding in found.findings] == [("run-crashed", Severity.INFO)]


def test_unread_keys_come_with_the_line_that_reads_them() -> None:
    found = judged([{"loss": 1.5, "grad_norm": 1.0, "outcome_score_v2": 0.4, "score_coef": 0.1}] * 20)
    assert found.verdict is RunVerdict.NOT_EVALUABLE
    assert found.judgement.unread == {"outcome_score_v2": 'columns: {reward_mean: "outcome_score_v2"}'}


def test_a_kl_to_the_engine_or_before_the_update_is_not_asked_for_as_the_reference_kl() -> None:
    found = judged([{"loss": 0.1, "reward": 0.5, "Generation KL Error": 0.001, "actor/ppo_kl": 0.0, "odd kl": 0.1}])
    assert list(found.judgement.unread) == ["odd kl"]


@pytest.mark.parametrize("rows", [1, 2])
def test_one_or_two_rows_are_too_short(rows: int) -> None:
    found = judged([GRPO] * rows)
    assert found.verdict is RunVerdict.TOO_SHORT
    assert found.judgement.early_signs == ()
    assert headline(found) == "too short"


@pytest.mark.parametrize("rows", [3, 4])
def test_few_rows_without_any_signal_are_not_called_healthy(rows: int) -> None:
    """verl's rows: advantages of 0 only. Five such rows are a finding."""
    silent = {
        "critic/score/mean": 0.0,
        "critic/advantages/max": 0.0,
        "critic/advantages/min": 0.0,
        "actor/grad_norm": 0.004,
        "actor/kl_loss": 0.001,
        "response_length/mean": 550.0,
    }
    found = judged([silent] * rows)
    assert found.verdict is RunVerdict.TOO_SHORT
    assert {sign.rule for sign in found.judgement.early_signs} == {"reward-variance-collapse"}
    assert judged([*[silent] * (rows - 1), {**silent, "critic/advantages/max": 1.0}]).verdict is RunVerdict.HEALTHY


@pytest.mark.parametrize(
    ("changed", "rule"),
    [
        ({"grad_norm": 0.0, "reward_std": 0.44, "frac_reward_zero_std": 0.0}, "gradient-lost"),
        ({"completions/clipped_ratio": 1.0, "completions/mean_length": 512.0}, "completions-truncated"),
        ({"entropy": 0.008}, "entropy-collapse"),
        ({"frac_reward_zero_std": 1.0}, "reward-variance-collapse"),
        ({"completion_length": math.nan}, "non-finite-metric"),
        ({"grad_norm": 2.9e9}, "grad-norm-spike"),
    ],
)
def test_early_signs_of_one_row(changed: Mapping[str, float], rule: str) -> None:
    found = judged([{**GRPO, **changed}])
    assert rule in {sign.rule for sign in found.judgement.early_signs}


@pytest.mark.parametrize(("rows", "short"), [(3, True), (4, True), (5, False)])
def test_a_few_rows_that_show_a_sign_are_too_short_to_be_healthy(rows: int, *, short: bool) -> None:
    """reward-variance-collapse waits for five rows; until then nobody may call the run healthy."""
    found = judged([{**GRPO, "reward": 0.0, "reward_std": 0.0, "frac_reward_zero_std": 1.0}] * rows)
    assert (found.verdict is RunVerdict.TOO_SHORT) is short
    assert found.verdict is not RunVerdict.HEALTHY
    assert ("reward-variance-collapse" in {sign.rule for sign in found.judgement.early_signs}) is short


def test_a_rate_that_the_log_rounds_to_zero_is_no_early_sign() -> None:
    pipeline = Pipeline("run", load_rules([]), catalogue())
    for step in (1, 2):
        values = {**GRPO, "learning_rate": 0.0}
        pipeline.feed(RawRow("log", ChannelKind.CONSOLE, step, values, resolution=0.0005))
    assert "learning-rate-zero" not in {sign.rule for sign in pipeline.snapshot().judgement.early_signs}


def test_a_rate_of_zero_is_an_early_sign_after_the_first_step() -> None:
    rows = [{**GRPO, "learning_rate": 0.0}] * 2
    signs = [{sign.rule for sign in judged(rows[:count]).judgement.early_signs} for count in (1, 2)]
    assert ["learning-rate-zero" in found for found in signs] == [False, True]


def test_a_gradient_of_zero_without_any_signal_is_no_early_sign() -> None:
    found = judged([{**GRPO, "grad_norm": 0.0, "reward_std": 0.0, "frac_reward_zero_std": 1.0}])
    assert "gradient-lost" not in {sign.rule for sign in found.judgement.early_signs}


def test_a_guess_alone_is_at_most_a_warning() -> None:
    """A KL of exactly 0 under its own name is critical; under a guessed one it may be another KL."""
    frozen = {"loss": 0.01, "grad_norm": 0.5, "reward": 0.5, "reward_std": 0.2, "completion_length": 100.0}
    known = judged([{**frozen, "kl": 0.0, "clip_ratio": 0.01}] * 40)
    guessed = judged([{**frozen, "kl_divergence": 0.0, "clip_ratio": 0.01}] * 40)
    severities = [
        {f.rule: f.severity for f in each.findings}.get("kl-stuck-at-zero", Severity.INFO) for each in (known, guessed)
    ]
    assert severities[1].rank <= Severity.WARNING.rank
    assert guessed.judgement.guessed == {"kl_divergence": "kl_reference"}
    (caveat,) = (text for text in caveats(guessed) if "guessed name" in text)
    assert caveat.startswith("one metric is read under a guessed name")


def test_guesses_that_turn_bad_together_are_critical() -> None:
    """Reward, entropy and length of an own loop, under guessed names: no mistake about one of them explains that."""
    good = {"loss": 0.1, "reward_avg": 0.6, "entropy_avg": 0.4, "avg_response_len": 200.0}
    lost = {"loss": 9.0, "reward_avg": 0.001, "entropy_avg": 11.9, "avg_response_len": 1000.0}
    found = judged([good] * 40 + [lost] * 40)
    assert found.judgement.guessed.keys() == good.keys() - {"loss"}
    assert found.verdict is RunVerdict.CRITICAL


def test_one_guess_that_turns_bad_is_at_most_a_warning() -> None:
    good = {"loss": 0.1, "reward_avg": 0.6, "entropy_avg": 0.4, "avg_response_len": 200.0}
    found = judged([good] * 40 + [{**good, "reward_avg": 0.001}] * 40)
    assert found.verdict is RunVerdict.WARNING


def test_nan_is_critical_under_any_name() -> None:
    rows = [{"loss": 0.01, "avg_reward": 0.5, "grad_norm": 0.5, "kl_divergence": 0.01}] * 10
    broken = [{"loss": math.nan, "avg_reward": 0.5, "grad_norm": math.nan, "kl_divergence": math.nan}] * 5
    found = {f.rule: f.severity for f in judged([*rows, *broken]).findings}
    assert found["non-finite-metric"] is Severity.CRITICAL


def test_nan_of_a_critic_is_found_and_that_of_a_function_is_left_alone() -> None:
    known = {**GRPO, "critic/vf_loss": 0.1, "rewards/a/mean": 0.5}
    critic = judged([*[known] * 20, *[{**known, "critic/vf_loss": math.nan}] * 3])
    function = judged([*[known] * 20, *[{**known, "rewards/a/mean": math.nan}] * 3])
    assert "non-finite-metric" in {finding.rule for finding in critic.findings}
    assert "non-finite-metric" not in {finding.rule for finding in function.findings}


def test_rows_of_an_own_loop_may_come_before_its_first_optimizer_step() -> None:
    """One row for each micro-batch: four zeros are an accumulation, twenty are a schedule that never starts."""

    def zeros(number: int) -> bool:
        rates = [0.0] * number + [1e-6] * (40 - number)
        rows = [{"avg_reward": 0.5, "kl_div": 0.01, "lr": rate} for rate in rates]
        return "learning-rate-zero" in {finding.rule for finding in judged(rows).findings}

    assert not zeros(8)
    assert zeros(30)


MIXED = a_batch(1, (0, 1, 2, 3), (0, 1, 2, 3))
DIFFERS = {"reward_zero_std_ratio": 0.25, "reward_group_std": 0.3, "reward_mean": 0.4}
BAD = a_checkpoint(5, {"w": "1"}, problems=("model.safetensors is cut off",))
ZERO_B = replace(
    a_checkpoint(5, {}, kind=CheckpointKind.ADAPTER), tensors={"a.lora_B": TensorDigest("F32", (4,), "0", zero=True)}
)
FROZEN = [row(step, kl_reference=0.0, learning_rate=1e-3, **DIFFERS) for step in (1, 2, 3)]
FIRST_SHOWN: Mapping[str, Sequence[Record]] = {
    "kl-stuck-at-zero": FROZEN,
    "gradient-lost": [row(1, grad_norm=0.0, **DIFFERS)],
    "learning-rate-zero": [row(1, learning_rate=0.0), row(2, learning_rate=0.0)],
    "parameters-unchanged": [a_checkpoint(5, {"w": "1"}), a_checkpoint(10, {"w": "1"})],
    "adapter-never-trained": [ZERO_B],
    "checkpoint-unusable": [BAD],
    "ranks-diverged": [a_checkpoint(5, {"r0.w": "1", "r1.w": "2"}, replicas=(("r0.w", "r1.w"),))],
    "group-size-one": [RunEvent("log", EventKind.CONFIG_ERROR, text="GRPO requires at least 2 generations per prompt")],
    "batch-not-divisible": [RunEvent("log", EventKind.CONFIG_ERROR, text="must be divisible by num_generations")],
    "reward-collapse": [row(step, reward_mean=0.8 if step < 9 else 0.0) for step in range(1, 15)],
    "duplicate-completions": [a_batch(1, (0, 1, 0, 1), (0, 1, 0, 1)), row(1, loss=0.0)],
    "mixed-prompt-group": [replace(MIXED, groups=tuple(replace(group, prompts=2) for group in MIXED.groups))],
    "stale-rollout-weights": [row(1, logprob_gap_rollout=0.8)],
    "train-rollout-mismatch": [row(1, importance_ratio_rollout=3e-7)],
    "reward-variance-collapse": [row(1, reward_zero_std_ratio=1.0)],
    "completions-truncated": [row(1, completion_truncated_ratio=1.0)],
    "entropy-collapse": [row(1, entropy=1e-4)],
    "kl-explosion": [row(1, kl_reference=4000.0)],
    "non-finite-metric": [row(1, loss=math.nan)],
    "run-crashed": [RunEvent("log", EventKind.CRASH_SUMMARY, text="RuntimeError: boom", seen=1.0)],
    "run-stalled": [row(step, loss=0.1)._replace(time=60.0 * step, seen=60.0 * step) for step in range(1, 9)]
    + [Tick(1e5)],
}
"""Per rule that may be critical, the first records that show its symptom."""


@pytest.mark.parametrize("rule", FIRST_SHOWN)
def test_a_critical_symptom_is_seen_from_the_first_record_on(rule: str) -> None:
    """The rule fires, or its early sign is shown."""
    watched = Watched(rule).feed(*FIRST_SHOWN[rule])
    fired = any(state == "firing" for state, _, _ in watched.changes)
    assert fired or rule in {sign.rule for sign in early_signs(watched.state)}


def test_every_critical_rule_has_an_early_sign_or_fires_at_once() -> None:
    """A new one needs an entry above; so do those whose readings raise them to critical."""
    critical = {rule.name for rule in SHIPPED.values() if rule.severity is Severity.CRITICAL}
    assert sorted(critical - FIRST_SHOWN.keys()) == []


def test_settings_alone_are_not_evaluable() -> None:
    """A rule about versions may judge them; nothing of the training was read."""
    assert judge(RunState("run", ()), blind=False)[0] is RunVerdict.NOT_EVALUABLE
