"""Random runs: metrics that stay usual for a while, then jump, freeze, vanish or break, and all else that can come."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator

from grpo_watch.engine.records import EventKind, MetricRow, Progress, Record, RunConfig, RunEvent, Setting, Stream, Tick
from tests.support.feeding import RUN
from tests.support.records import a_batch, a_checkpoint

ALONE = ("kl_rollout", "memory_gib", "policy_clip_ratio", "kl_policy_update", "logprob_gap_rollout", "eval_only")
LEVELS = {
    "loss": (0.0, 0.1),
    "grad_norm": (0.4, 0.3),
    "learning_rate": (1e-6, 0.0),
    "reward_mean": (0.5, 0.2),
    "reward_group_std": (0.2, 0.05),
    "reward_zero_std_ratio": (0.2, 0.1),
    "reward_function_mean[a]": (0.3, 0.1),
    "reward_function_std[a]": (0.2, 0.05),
    "reward_function_mean[b]": (0.2, 0.1),
    "reward_function_std[b]": (0.2, 0.05),
    "kl_reference": (0.02, 0.01),
    "entropy": (0.6, 0.1),
    "completion_length_mean": (200.0, 40.0),
    "completion_truncated_ratio": (0.05, 0.05),
    "step_seconds": (2.0, 0.2),
    "epoch": (0.5, 0.0),
    "kl_rollout": (0.01, 0.01),
    "memory_gib": (60.0, 0.1),
    "policy_clip_ratio": (0.02, 0.02),
    "kl_policy_update": (0.001, 0.001),
    "logprob_gap_rollout": (0.02, 0.01),
}
"""Metric to a usual value and its noise."""


def wander(rng: random.Random, rows: int) -> Iterator[Record]:
    """Rows whose metrics stay usual for a while, then jump, freeze, vanish or break, and all else that can come."""
    names = [name for name in LEVELS if name not in ALONE or rng.random() < 0.3]
    level = {name: LEVELS[name][0] for name in names}
    still: set[str] = set()
    absent: set[str] = set()
    reuse = rng.choice([0, 0, 0, 3])
    step, attempt = 0, 1
    yield RunConfig("trl", "1.16.0", {"beta": Setting(0.04, "test"), "num_iterations": Setting(2, "test")})
    for number in range(rows):
        step += 1
        if rng.random() < 0.04:
            _disturb(rng, names, level, still, absent)
        if rng.random() < 0.01:
            attempt, step = attempt + 1, max(1, step - rng.randrange(30))
        values: dict[str, float | None] = {}
        for name in names:
            if name in absent or (reuse and number % reuse and name.startswith(("reward", "completion"))):
                continue
            noise = (
                0.0
                if name in still
                else LEVELS[name][1]
                * rng.gauss(0, 1)
                * (level[name] / LEVELS[name][0] or 0.0 if LEVELS[name][0] else 1.0)
            )
            values[name] = level[name] + noise
        odd = rng.random()
        if odd < 0.01 and values:
            values[rng.choice(list(values))] = rng.choice([math.nan, math.inf, None])
        resolution = 1e-8 if rng.random() < 0.001 else None
        yield MetricRow(RUN, Stream.TRAIN, attempt, step, values, time=float(number), resolution=resolution)
        yield from _besides(rng, attempt, step, number)


def _disturb(rng: random.Random, names: list[str], level: dict[str, float], still: set[str], absent: set[str]) -> None:
    name = rng.choice(names)
    what = rng.randrange(6)
    if what == 0:
        level[name] = 0.0
        still.add(name)
    elif what == 1:
        level[name] = LEVELS[name][0] * rng.choice([0.05, 0.3, 3.0, 30.0])
    elif what == 2:
        absent.add(name)
    elif what == 3:
        still.symmetric_difference_update({name})
    else:
        level[name] = LEVELS[name][0]
        still.discard(name)
        absent.discard(name)


def _besides(rng: random.Random, attempt: int, step: int, number: int) -> Iterator[Record]:
    draw = rng.random()
    if draw < 0.03:
        yield a_batch(step, (0, 1, 2, 3) if rng.random() < 0.7 else (0, 0, 1, 1))
    elif draw < 0.05:
        yield MetricRow(
            RUN, Stream.TRAIN, attempt, step, {"entropy": 0.4, "reward_zero_std_ratio": 0.5}, supplement=True
        )
    elif draw < 0.06:
        yield MetricRow(RUN, Stream.EVAL, attempt, step, {"eval_score[reward]": 0.1})
    elif draw < 0.07:
        yield Tick(float(number))
    elif draw < 0.08:
        yield RunEvent("log", rng.choice(list(EventKind)), step, "RuntimeError: no", seen=float(number))
    elif draw < 0.09:
        yield Progress("log", step, 1000)
    elif draw < 0.10:
        yield a_checkpoint(step, {"w": str(rng.randrange(3))})
