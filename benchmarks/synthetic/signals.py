"""Simulates what a run measures, step by step and completion by completion, from its settings.

The noise is that of real runs (21 recorded with TRL 0.24 and 1.16 and ms-swift 3.12 and 4.6, and public logs): rewards
are drawn per completion, so that mean, spread and zero-spread groups belong together; KL grows with the square of the
summed learning rate (constant 500 to 300,000, adapters 60 to 100,000) and saturates, with 20 to 40 % noise and, in
small batches, single rows of ten times as much; entropy, length and gap wander with an autocorrelation of 0.3 to 0.7;
gradient norms are log-normal with a heavy tail, and what is left without a signal is the KL's; first steps are slow.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
from numpy.random import Generator

from benchmarks.synthetic.shape import Shape, learning_rates
from grpo_watch.engine.records import RunEvent

Floats: TypeAlias = np.ndarray[Any, np.dtype[np.float64]]
Whole: TypeAlias = np.ndarray[Any, np.dtype[np.int64]]

START = 1_790_000_000.0
"""When every synthetic run starts (Unix seconds)."""


@dataclass(slots=True)
class Signals:
    """Everything a run would measure. First axes: ``n`` generation batches, ``t`` optimizer steps (0 is step 1).

    ``parts`` (n, prompts, group) by reward function; ``lengths`` (n, prompts, group) in tokens; ``pattern`` (n,
    prompts, group) numbers the texts of a group, equal ones alike; ``prompt_ids`` and the counts of bad texts (n,
    prompts), ``again`` of texts that the prompt has whenever it comes; ``shift`` (n) rows by which dumped advantages
    are off, ``masked`` (n) completions of a group are left out of the loss, ``stretch`` (n) is a factor on the first
    advantage; the rest (t). ``version`` numbers the policy's weights after each step. ``logged`` holds
    more keys and their values (t). ``gone`` maps a metric to the step from which it is not logged; ``settings`` are
    more of the run's configuration. The log ends after ``stop`` steps with ``last_words``; ``silence`` seconds later is
    the last tick.
    """

    shape: Shape
    parts: dict[str, Floats]
    weights: dict[str, float]
    lengths: Floats
    limit: float
    rate: Floats
    kl: Floats
    entropy: Floats
    grad: Floats
    clip: Floats
    gap: Floats
    seconds: Floats
    memory: Floats
    version: Whole
    pattern: Whole
    prompt_ids: Whole
    near: Whole
    mixed: Whole
    empty: Whole
    looping: Whole
    again: Whole
    shift: Whole
    masked: Whole
    stretch: Floats
    epoch: Floats
    broken_checkpoints: str = ""
    zero_adapter: bool = False
    base: Whole | None = None
    ranks: Whole | None = None
    gone: dict[str, int] = field(default_factory=dict)
    logged: dict[str, Floats] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)
    events: list[tuple[int, RunEvent]] = field(default_factory=list)
    stop: int = 0
    last_words: RunEvent | None = None
    finished: bool = True
    silence: float = 1.0


@dataclass(frozen=True, slots=True)
class Damage:
    """What a fault does to learning itself, per step: ``learns`` (0: no update arrives), ``health`` (0: skill is lost).

    ``least_skill`` is what the policy can do at least before, so that there is something to lose. Without ``gains`` it
    learns nothing that pays: the reward stays where it begins.
    """

    learns: Floats
    health: Floats
    least_skill: float = 0.02
    gains: bool = True


def no_damage(steps: int) -> Damage:
    """A run that learns."""
    return Damage(np.ones(steps), np.ones(steps))


def wander(rng: Generator, count: int, spread: float, memory: float) -> Floats:
    """Noise of standard deviation ``spread`` with lag-one autocorrelation ``memory``."""
    shocks = rng.normal(0.0, spread * np.sqrt(1.0 - memory**2), count)
    out = np.empty(count)
    value = rng.normal(0.0, spread)
    for index in range(count):
        value = memory * value + shocks[index]
        out[index] = value
    return out


def simulate(shape: Shape, rng: Generator, damage: Damage) -> Signals:
    """All signals of one run."""
    rate = learning_rates(shape)
    progress = np.cumsum(rate * damage.learns) / max(rate.sum(), 1e-30)
    starts = np.arange(shape.generations) * shape.every
    skill = np.maximum(damage.least_skill, _skill(shape, rng, progress[starts] * damage.gains)) * damage.health[starts]
    parts, weights = _rewards(shape, rng, skill)
    total = total_of(parts, weights)
    silent = (np.std(total, axis=2) < 1e-9).mean(axis=1)
    signal = np.repeat(1.0 - silent, shape.every)[: shape.steps]
    lengths, limit = _lengths(shape, rng, progress[starts])
    entropy = _entropy(shape, rng, progress)
    batches = (shape.generations, shape.prompts)
    kl = _kl(shape, rng, rate * signal * damage.learns)
    return Signals(
        shape=shape,
        parts=parts,
        weights=weights,
        lengths=lengths,
        limit=limit,
        rate=rate,
        kl=kl,
        entropy=entropy,
        grad=_grad(shape, rng, signal, kl),
        clip=_clip(shape, rng),
        gap=rng.uniform(0.03, 0.065) * entropy * np.exp(wander(rng, shape.steps, 0.15, 0.5)),
        seconds=_seconds(shape, rng, lengths),
        memory=_memory(shape, rng),
        version=np.cumsum(rate * damage.learns > 0),
        pattern=np.broadcast_to(np.arange(shape.group), (*batches, shape.group)).copy(),
        prompt_ids=_prompts(shape, rng),
        near=np.full(batches, shape.group),
        mixed=np.ones(batches, dtype=np.int64),
        empty=np.zeros(batches, dtype=np.int64),
        looping=rng.binomial(shape.group, rng.choice([0.0, 0.01, 0.03]), batches),
        again=np.zeros(batches, dtype=np.int64),
        shift=np.zeros(shape.generations, dtype=np.int64),
        masked=np.zeros(shape.generations, dtype=np.int64),
        stretch=np.ones(shape.generations),
        epoch=(np.arange(shape.steps) + 1.0) * shape.prompts / shape.every / dataset_size(shape),
        stop=shape.steps,
    )


def total_of(parts: dict[str, Floats], weights: dict[str, float]) -> Floats:
    """The weighted total of all reward functions."""
    return np.asarray(sum(weights[name] * part for name, part in parts.items()))


def dataset_size(shape: Shape) -> int:
    """Prompts such that the run makes a little more than one pass, or a quarter of one."""
    return max(8, shape.generations * shape.prompts * 4 // 5)


def _skill(shape: Shape, rng: Generator, progress: Floats) -> Floats:
    """From 0 to 1: begins somewhere, rises and flattens, and wanders a little."""
    start, gain, bend = rng.uniform(0.1, 0.6), rng.uniform(0.0, 0.6), rng.uniform(1.0, 4.0)
    if shape.mood == "solved":
        gain = 0.97 - start
    elif shape.mood == "bold":
        gain = 0.5
    curve = start + gain * (1.0 - np.exp(-bend * progress)) / (1.0 - np.exp(-bend))
    return np.asarray(np.clip(curve + wander(rng, len(progress), 0.02, 0.8), 0.02, 0.98))


def _rewards(shape: Shape, rng: Generator, skill: Floats) -> tuple[dict[str, Floats], dict[str, float]]:
    if shape.reward == "dense":
        scale, offset = float(rng.choice([1.0, 1.0, 3.0])), float(rng.choice([0.0, 0.0, -0.5]))
        return {"score": scale * (offset + _dense(shape, rng, skill))}, {"score": 1.0}
    accuracy = _binary(shape, rng, skill, rng.uniform(0.5, 2.5))
    if shape.reward == "binary":
        return {"accuracy": accuracy}, {"accuracy": 1.0}
    eager = np.clip(0.3 + 1.5 * skill, 0.02, 0.97)
    parts = {
        "accuracy": accuracy * float(rng.choice([1.0, 2.0])),
        "format": _binary(shape, rng, eager, 0.5) * float(rng.choice([0.5, 1.0])),
        "style": _dense(shape, rng, 0.5 * skill + 0.2) * 0.5,
    }
    return parts, {"accuracy": 1.0, "format": float(rng.choice([0.5, 1.0])), "style": 1.0}


def _dense(shape: Shape, rng: Generator, skill: Floats) -> Floats:
    size = (shape.generations, shape.prompts, shape.group)
    between = rng.normal(0.0, rng.uniform(0.02, 0.15), size[:2])[:, :, None]
    return np.asarray(skill[:, None, None] + between + rng.normal(0.0, rng.uniform(0.08, 0.25), size))


def _binary(shape: Shape, rng: Generator, skill: Floats, spread: float) -> Floats:
    hard = rng.normal(0.0, spread, (shape.generations, shape.prompts))
    held = np.clip(skill, 1e-6, 1.0 - 1e-6)
    chance = 1.0 / (1.0 + np.exp(-(np.log(held / (1.0 - held))[:, None] + hard)))
    return (rng.random((*hard.shape, shape.group)) < chance[:, :, None]).astype(float)


def _kl(shape: Shape, rng: Generator, moved: Floats) -> Floats:
    summed = np.concatenate([[0.0], np.cumsum(moved)[:-1]])
    if shape.adapter:
        constant = np.clip(300.0 * np.exp(rng.normal(0.0, 1.3)), 60.0, 1e5)
    else:
        constant = np.clip(4000.0 * np.exp(rng.normal(0.0, 1.2)), 500.0, 3e5)
    ceiling = 10 ** (rng.uniform(0.0, 0.5) if shape.mood == "bold" else rng.uniform(-1.7, -0.1))
    mean = ceiling * (1.0 - np.exp(-constant * summed**2 / ceiling))
    noisy = mean * np.exp(wander(rng, len(mean), rng.uniform(0.15, 0.35), 0.3))
    small = shape.prompts * shape.group <= 16
    spikes = rng.random(len(mean)) < (0.006 if small else 0.001)
    return np.asarray(np.where(spikes, noisy * rng.uniform(5.0, 30.0, len(mean)), noisy))


def _entropy(shape: Shape, rng: Generator, progress: Floats) -> Floats:
    first = 10 ** (rng.uniform(-1.3, -0.1) if shape.gap_logged else rng.uniform(-0.8, 0.35))
    trend = np.exp(np.log(rng.uniform(0.3, 1.6)) * progress)
    return np.asarray(first * trend * np.exp(wander(rng, shape.steps, rng.uniform(0.02, 0.13), 0.4)))


def _lengths(shape: Shape, rng: Generator, progress: Floats) -> tuple[Floats, float]:
    typical = 10 ** rng.uniform(1.3, 3.2)
    growth = rng.uniform(0.3, 0.6) if shape.mood == "cut" else rng.uniform(0.6, 1.6)
    room = 0.7 if shape.mood == "cut" else rng.choice([1.2, 2.0, 3.0, 4.0])
    limit = float(np.ceil(typical * max(1.0, growth) * room))
    trend = typical * np.exp(np.log(growth) * progress)
    drift = np.exp(wander(rng, len(progress), rng.uniform(0.03, 0.1), 0.6))
    size = (len(progress), shape.prompts, shape.group)
    texts = (trend * drift)[:, None, None] * np.exp(rng.normal(-0.06, rng.uniform(0.2, 0.45), size))
    return np.clip(np.round(texts), 2.0, limit), limit


def _grad(shape: Shape, rng: Generator, signal: Floats, kl: Floats) -> Floats:
    small = shape.prompts * shape.group <= 16
    usual = 10 ** rng.uniform(-1.2, 0.6)
    trend = np.linspace(1.0, rng.uniform(0.3, 1.2), shape.steps)
    norm = usual * trend * np.exp(wander(rng, shape.steps, rng.uniform(0.4, 0.6) if small else 0.25, 0.15))
    outlier = rng.random(shape.steps) < (0.004 if small else 0.001)
    norm = np.where(outlier, norm * rng.uniform(4.0, 12.0, shape.steps), norm) * np.sqrt(signal)
    return np.asarray(norm + 0.12 * usual * shape.beta / 0.04 * np.sqrt(kl))


def _clip(shape: Shape, rng: Generator) -> Floats:
    """Clipping happens only on rows that use a batch again."""
    reuse = np.arange(shape.steps) % shape.every > 0
    return np.asarray(np.where(reuse, np.minimum(0.2, 10 ** rng.normal(-2.7, 0.5, shape.steps)), 0.0))


def _seconds(shape: Shape, rng: Generator, lengths: Floats) -> Floats:
    longest = lengths.max(axis=(1, 2))
    generating = 10 ** rng.uniform(-0.7, 2.0) * (longest / longest.mean()) ** 0.7
    reuse = np.arange(shape.steps) % shape.every > 0
    base = np.repeat(generating, shape.every)[: shape.steps] * np.where(reuse, rng.uniform(0.05, 0.3), 1.0)
    base = base * np.exp(wander(rng, shape.steps, rng.uniform(0.05, 0.2), 0.3))
    base[0] *= rng.uniform(2.0, 8.0)
    return np.asarray(base)


def _memory(shape: Shape, rng: Generator) -> Floats:
    """The high-water mark as ms-swift 3 logs it: steps up early, flat later."""
    peak = rng.uniform(18.0, 70.0)
    rising = peak * (0.9 + 0.1 * (1.0 - np.exp(-np.arange(shape.steps) / rng.uniform(3.0, 30.0))))
    return np.asarray(np.round(np.maximum.accumulate(rising + rng.normal(0.0, 0.05, shape.steps)), 2))


def _prompts(shape: Shape, rng: Generator) -> Whole:
    """Prompts in the order of a sampler that shuffles each epoch."""
    size, needed = dataset_size(shape), shape.generations * shape.prompts
    epochs = [rng.permutation(size) for _ in range(-(-needed // size))]
    return np.asarray(np.concatenate(epochs)[:needed].reshape(shape.generations, shape.prompts))
