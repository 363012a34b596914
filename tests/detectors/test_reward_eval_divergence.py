"""Held-out scores: how evaluation rows reach the rule, and what counts as a divergence."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from grpo_watch.detectors.reward.reward_course import rank
from grpo_watch.engine.records import ChannelKind, ChannelOpened, MetricRow, RawRow, Stream
from grpo_watch.frameworks.key_plan import MAX_SCORES, scores_of
from grpo_watch.frameworks.resolver import Resolver
from grpo_watch.pipeline.assembler import Assembler
from tests.support.detecting import Watched
from tests.support.records import evaluation, row

RULE = "reward-eval-divergence"


@pytest.mark.parametrize(
    ("key", "name"),
    [
        ("eval_reward", "reward"),
        ("eval/reward", "reward"),
        ("eval_rewards/accuracy_reward/mean", "rewards/accuracy_reward/mean"),
        ("val-core/openai/gsm8k/acc/mean@1", "openai/gsm8k/acc/mean@1"),
        ("val-aux/aime/reward/mean@32", "aime/reward/mean@32"),
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
        "val-aux/aime/overlong/mean@32",
        "val-aux/aime/overlong_reward/mean@32",
        "val-aux/aime/format_penalty/mean@32",
    ],
)
def test_what_is_no_mean_score(key: str) -> None:
    assert scores_of((key,)) == ()


def test_an_evaluation_is_a_row_of_its_own_stream() -> None:
    """As the Trainer logs it; what else it measures is dropped."""
    assembler, trained = Assembler("run"), {"loss": 0.1, "reward": 0.5, "num_tokens": 9.0}
    items = [
        ChannelOpened("log", ChannelKind.JSONL),
        RawRow("log", ChannelKind.JSONL, 1, trained),
        RawRow("log", ChannelKind.JSONL, 1, {"eval_reward": 0.4, "eval_loss": 0.1}, Stream.EVAL),
    ]
    made = [record for item in items for record in assembler.feed(item) if isinstance(record, MetricRow)]
    got = [(each.stream, each.step, each.values) for each in made[1:]]
    assert got == [(Stream.EVAL, 1, {"eval_score[reward]": 0.4})]


def test_verls_scores_stand_in_the_row_of_the_step() -> None:
    keys = {"actor/pg_clipfrac": 0.1, "actor/ppo_kl": 0.0, "critic/score/mean": 0.4, "val-core/gsm8k/acc/mean@1": 0.6}
    found = Resolver().resolve(RawRow("log", ChannelKind.JSONL, 5, keys))
    assert (found.values["reward_mean"], found.scores) == (0.4, {"eval_score[gsm8k/acc/mean@1]": 0.6})
    rows = Assembler("run").feed(RawRow("log", ChannelKind.JSONL, 5, keys))
    assert [each.stream for each in rows if isinstance(each, MetricRow)] == [Stream.EVAL, Stream.TRAIN]


def test_a_row_that_says_it_is_an_evaluation_needs_no_prefixes() -> None:
    keys = ("reward_mean", "accuracy", "loss", "completion_length")
    assert scores_of(keys) == ()
    named = [metric for metric, _ in scores_of(keys, alone=True)]
    assert named == ["eval_score[reward_mean]", "eval_score[accuracy]"]


def test_seven_evaluations_are_too_few() -> None:
    run = Watched(RULE)
    for step in range(1, 71):
        run.feed(row(step, reward_mean=0.2 + 0.01 * step))
        run.feed_all([evaluation(step, accuracy=0.9 - 0.01 * step)] if step % 10 == 0 else [])
    assert run.changes == []
    assert run.blind_reason == "too few evaluations yet"


def test_noise_alone_hardly_ever_fires() -> None:
    """500 runs of 20 noisy evaluations around a level, while the reward rises: at most one in a hundred."""
    rng = random.Random(3)
    fired = 0
    for _ in range(500):
        run = Watched(RULE)
        for step in range(1, 21):
            score = evaluation(step, accuracy=0.5 + rng.gauss(0.0, 0.05))
            run.feed(row(step, reward_mean=0.2 + 0.02 * step), score)
        fired += bool(run.changes)
    assert fired <= 5


@pytest.mark.parametrize(
    ("name", "expected"),
    [("gsm8k/acc/mean@1", 0), ("accuracy", 0), ("reward", 1), ("aime/score/mean@32", 1), ("rewards/overlong/mean", 2)],
)
def test_what_a_score_says_of_answers(name: str, expected: int) -> None:
    assert rank(name) == expected


def fired(steps: int, every: int, trained: Callable[[int], float], **scores: Callable[[int], float]) -> bool:
    """Whether a run with an evaluation every so many steps fires; names of scores have ``__`` for ``/``."""
    run = Watched(RULE)
    for step in range(1, steps + 1):
        held = evaluation(step, **{name: score(step) for name, score in scores.items()})
        run.feed(row(step, reward_mean=trained(step)), *([held] if step % every == 0 else []))
    return bool(run.changes)


def rising(step: int) -> float:
    """A training reward, or a held-out one that follows it: from 0.2 to 0.8 within 200 steps, with a little noise."""
    return 0.2 + 0.003 * step + 0.004 * (step % 3)


def test_a_gain_before_the_first_evaluation_is_none() -> None:
    """Learned within 60 steps, evaluated every 50: both then stand still, and the held-out one lies a little lower."""

    def learned(step: int) -> float:
        return min(0.2 + 0.01 * step, 0.8) + 0.004 * (step % 3)

    assert not fired(600, 50, learned, reward=lambda step: 0.7 + 0.002 * (step % 3))
    assert not fired(600, 50, learned, accuracy=lambda step: 0.75 - 0.0002 * step)


def test_a_held_out_reward_that_stays_behind() -> None:
    assert fired(200, 10, rising, reward=lambda step: 0.25 + 0.002 * (step % 4))
    assert not fired(200, 10, rising, reward=lambda step: 0.85 + 0.002 * (step % 4)), "it is as high as the training's"


def test_held_out_scores_that_stay_at_zero() -> None:
    """Four evaluations are enough, as in a public run: accuracy 0.004, then 0 while the reward goes to 0.8."""
    assert fired(50, 10, lambda step: min(0.8, 0.02 * step), accuracy=lambda step: 0.004 if step == 10 else 0.0)
    assert not fired(40, 10, lambda step: min(0.8, 0.02 * step), accuracy=lambda step: 0.004 if step == 10 else 0.0)


def test_a_benchmark_that_was_never_above_zero_needs_all_evaluations() -> None:
    """Seven may be those of one that is too hard; eight are judged as any score is."""
    assert not fired(79, 10, lambda step: min(0.8, 0.01 * step), accuracy=lambda _: 0.0)
    assert fired(80, 10, lambda step: min(0.8, 0.01 * step), accuracy=lambda _: 0.0)


def test_a_training_reward_of_exactly_zero_is_a_reward() -> None:
    """From -1 to exactly 0, where it ends: a gain of 0.75 between the first evaluation and the newest."""
    assert fired(80, 16, lambda step: min(0.0, 0.025 * step - 1.0), accuracy=lambda step: 0.01 if step == 16 else 0.0)


def test_a_hard_benchmark_at_zero_beside_another_that_is_not() -> None:
    assert not fired(60, 10, rising, aime__accuracy=lambda _: 0.0, math__accuracy=lambda step: 0.2 + 0.003 * step)


def test_zero_without_a_gain_in_training_is_a_hard_task() -> None:
    assert not fired(70, 10, lambda step: 0.2 + 0.01 * (step % 3), accuracy=lambda _: 0.0)


def test_a_fall_has_a_least_size() -> None:
    """Steady falls, so that noise is no doubt: by a ten-thousandth, by 2 %, by a fifth."""
    assert not fired(200, 10, rising, accuracy=lambda step: 0.75 - 0.0001 * step / 200)
    assert not fired(200, 10, rising, accuracy=lambda step: 0.75 - 0.02 * step / 200)
    assert fired(200, 10, rising, accuracy=lambda step: 0.75 - 0.15 * step / 200)


def falling(step: int) -> float:
    return 0.6 - 0.001 * step


def test_most_benchmarks_must_have_fallen() -> None:
    assert not fired(200, 10, rising, math__accuracy=rising, mmlu__accuracy=falling)
    assert not fired(200, 10, rising, math__accuracy=rising, mmlu__accuracy=falling, gpqa__accuracy=lambda _: 0.4)
    assert fired(200, 10, rising, math__accuracy=rising, mmlu__accuracy=falling, gpqa__accuracy=falling)


def test_what_judges_is_the_best_of_accuracies_totals_and_parts() -> None:
    """A gamed reward rises on held-out prompts too; a part of it may fall by design."""
    assert fired(200, 10, rising, accuracy=falling, reward=rising)
    assert not fired(200, 10, rising, reward=rising, rewards__overlong__mean=lambda step: -0.002 * step)
    assert fired(200, 10, rising, rewards__accuracy__mean=falling)


def test_a_new_name_on_every_evaluation_is_a_score_only_so_often() -> None:
    resolver, names = Resolver(), set[str]()
    for step in range(1, 3 * MAX_SCORES):
        keys = {"loss": 0.1, "reward": 0.5, "eval/first/accuracy": 0.25, f"eval/task_{step}/accuracy": 0.5}
        scores = resolver.resolve(RawRow("log", ChannelKind.JSONL, step, keys)).scores
        names |= scores.keys()
        assert scores["eval_score[first/accuracy]"] == 0.25
    assert len(names) == MAX_SCORES
