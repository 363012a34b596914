"""Held-out scores: how evaluation rows reach the rule, and what counts as a divergence."""

from __future__ import annotations

import random

import pytest

from grpo_watch.engine.records import ChannelKind, ChannelOpened, MetricRow, RawRow, Stream
from grpo_watch.frameworks.key_plan import scores_of
from grpo_watch.frameworks.resolver import Resolver
from grpo_watch.pipeline.assembler import Assembler
from tests.support.detecting import Watched
from tests.support.records import row

RULE = "reward-eval-divergence"


@pytest.mark.parametrize(
    ("key", "name"),
    [
        ("eval_reward", "reward"),
        ("eval/reward", "reward"),
        ("eval_rewards/accuracy_reward/mean", "rewards/accuracy_reward/mean"),
        ("val-core/openai/gsm8k/acc/mean@1", "openai/gsm8k/acc/mean@1"),
        ("val/test_score/nq", "test_score/nq"),
        ("validation/accuracy", "accuracy"),
        ("test/env/all/reward/total", "env/all/reward/total"),
        ("eval/all/avg_score", "all/avg_score"),
    ],
)
def test_scores_of_frameworks(key: str, name: str) -> None:
    assert scores_of(("loss", key)) == ((f"eval_score[{name}]", key),)


@pytest.mark.parametrize(
    "key",
    [
        "eval_loss",
        "eval_runtime",
        "eval_reward_std",
        "eval_rewards/accuracy_reward/std",
        "val-core/openai/gsm8k/acc/best@8/mean",
        "val-aux/num_turns/mean",
        "eval_completions/mean_length",
        "rewards/accuracy/mean",
        "validation/avg_length",
    ],
)
def test_what_is_no_mean_score(key: str) -> None:
    assert scores_of((key,)) == ()


def test_an_evaluation_row_joins_the_step_it_belongs_to() -> None:
    """The Trainer logs it as a row of its own."""
    assembler, trained = Assembler("run"), {"loss": 0.1, "reward": 0.5, "num_tokens": 9.0}
    items = [
        ChannelOpened("log", ChannelKind.JSONL),
        RawRow("log", ChannelKind.JSONL, 1, trained),
        RawRow("log", ChannelKind.JSONL, 1, {"eval_reward": 0.4, "eval_loss": 0.1}, Stream.EVAL),
    ]
    made = [record for item in items for record in assembler.feed(item) if isinstance(record, MetricRow)]
    joined = [record for record in made if record.supplement]
    got = [(each.stream, each.step, each.values) for each in joined]
    assert got == [(Stream.TRAIN, 1, {"eval_score[reward]": 0.4})]


def test_verls_scores_stand_in_the_row_of_the_step() -> None:
    keys = {"actor/pg_clipfrac": 0.1, "actor/ppo_kl": 0.0, "critic/score/mean": 0.4, "val-core/gsm8k/acc/mean@1": 0.6}
    values = Resolver().resolve(RawRow("log", ChannelKind.JSONL, 5, keys)).values
    assert (values["reward_mean"], values["eval_score[gsm8k/acc/mean@1]"]) == (0.4, 0.6)


def test_seven_evaluations_are_too_few() -> None:
    run = Watched(RULE)
    for step in range(1, 71):
        score = {"eval_score[accuracy]": 0.9 - 0.01 * step} if step % 10 == 0 else {}
        run.feed(row(step, reward_mean=0.2 + 0.01 * step, **score))
    assert run.changes == []
    assert run.blind_reason == "too few evaluations yet"


def test_noise_alone_hardly_ever_fires() -> None:
    """500 runs of 20 noisy evaluations around a level, while the reward rises: at most one in a hundred."""
    rng = random.Random(3)
    fired = 0
    for _ in range(500):
        run = Watched(RULE)
        for step in range(1, 21):
            score = {"eval_score[accuracy]": 0.5 + rng.gauss(0.0, 0.05)}
            run.feed(row(step, reward_mean=0.2 + 0.02 * step, **score))
        fired += bool(run.changes)
    assert fired <= 5
