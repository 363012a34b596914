"""Faults of the reward: no spread, no number, components that die or work against each other."""

from __future__ import annotations

import numpy as np
from numpy.random import Generator

from benchmarks.synthetic.fault import TRL_LATEST, batches, fault, ramp, silent, trend
from benchmarks.synthetic.signals import Signals


@fault("advantage-out-of-bounds", tables=True, reward="dense", configured=True)
def deviation_of_nothing(signals: Signals, rng: Generator, start: int, strength: float) -> None:
    """Some advantages are divided by what rounding leaves of a deviation."""
    signals.settings["scale_rewards"] = "group"
    signals.stretch[batches(signals, start)] = 5.0 * 400.0**strength


@fault("advantage-out-of-bounds", tables=True, reward="dense", configured=True, beta=0.04, from_start=True)
def rewards_of_a_million(signals: Signals, rng: Generator, start: int, strength: float) -> None:
    """Scores in millions that nothing divides."""
    signals.settings["scale_rewards"] = "none"
    signals.parts["score"] *= 10.0 ** (5.0 + 3.0 * strength)


@fault("advantage-arithmetic", "reward-misaligned", tables=True, reward="dense", prompts=4)
def masked_samples_vote(signals: Signals, rng: Generator, start: int, strength: float) -> None:
    """A share of completions is masked out of the loss, but stays in the baseline."""
    signals.masked[batches(signals, start)] = 1 + round(strength * (signals.shape.group // 2 - 1))


@fault("reward-eval-divergence", **TRL_LATEST, every=1, reward="dense", mood="bold", from_start=True, prompts=16)
def held_out_falls(signals: Signals, rng: Generator, start: int, strength: float) -> None:
    """The training reward rises, the held-out accuracy falls."""
    steps = signals.shape.steps
    fall = np.linspace(0.0, 0.15 + 0.25 * strength, steps)
    signals.logged["eval_accuracy"] = 0.6 - fall + rng.normal(0.0, 0.01, steps)


@fault("reward-errors", **TRL_LATEST, reward="binary", flat=True, configured=True)
def verifier_times_out(signals: Signals, rng: Generator, start: int, strength: float) -> None:
    """Rewards fail and count as 0; ``generation_batch_size`` is known."""
    shape, where = signals.shape, batches(signals, start)
    failed = rng.random(signals.parts["accuracy"].shape) < 0.3 + 0.6 * strength
    signals.parts["accuracy"][where] *= ~failed[where]
    counts = np.repeat(failed.sum(axis=(1, 2)), shape.every)[: shape.steps].astype(float)
    counts[:start] = 0.0
    signals.logged["reward_failures"] = counts
    signals.settings["generation_batch_size"] = shape.prompts * shape.group


@fault("reward-variance-collapse", "dead-reward-component", from_start=True, reward="binary")
def constant_reward(signals: Signals, rng: Generator, start: int, strength: float) -> None:
    """Every completion gets the same reward."""
    signals.parts["accuracy"][:] = float(rng.choice([0.0, 1.0, 0.5]))
    silent(signals, start)


@fault("reward-variance-collapse", **TRL_LATEST, from_start=True, flat=True, reward="components", prompts=4)
def only_a_constant_counts(signals: Signals, rng: Generator, start: int, strength: float) -> None:
    """The functions that score completions apart have weight 0; the third gives 1 to all."""
    signals.weights = {"accuracy": 0.0, "format": 1.0, "style": 0.0}
    signals.parts["format"][:] = 1.0
    silent(signals, start)


@fault("reward-variance-collapse", reward="binary", prompts=8)
def all_wrong_midway(signals: Signals, rng: Generator, start: int, strength: float) -> None:
    """Only a few groups still differ."""
    where = batches(signals, start)
    part = signals.parts["accuracy"]
    part[where] *= rng.random(part[where].shape[:2])[:, :, None] < 0.05 * (1.0 - strength)


@fault("reward-not-finite", "non-finite-metric", prompts=2, reward="components")
def reward_becomes_nan(signals: Signals, rng: Generator, start: int, strength: float) -> None:
    """A reward function returns NaN: the mean is lost with it."""
    where = batches(signals, start)
    signals.parts["accuracy"][where] = np.nan


@fault("dead-reward-component", from_start=True, reward="components")
def dead_component(signals: Signals, rng: Generator, start: int, strength: float) -> None:
    """One of three functions always gives 0."""
    signals.parts["format"][:] = 0.0


@fault("reward-components-diverge", reward="components", prompts=8, steps=200, every=1, configured=True)
def component_sacrificed(signals: Signals, rng: Generator, start: int, strength: float) -> None:
    """Style is bought with accuracy; no function is blamed without the weights in the run's configuration."""
    traded = trend(signals, start, 60.0)
    kept = 0.3 * (1.0 - strength)
    accuracy, style = signals.parts["accuracy"], signals.parts["style"]
    accuracy *= rng.random(accuracy.shape) < 1.0 - traded * (1.0 - kept)
    style += traded * (2.5 + strength)


@fault("reward-components-cancel", from_start=True, reward="components", prompts=8, steps=200, every=1)
def components_cancel(signals: Signals, rng: Generator, start: int, strength: float) -> None:
    """What one function gives for length, another takes."""
    swing = np.cumsum(rng.normal(0.0, 0.05 + 0.1 * strength, signals.shape.generations))[:, None, None]
    style = signals.parts["style"]
    signals.parts = {"long": 0.5 + swing + 0.05 * style, "short": 0.5 - swing + 0.05 * style}
    signals.weights = {"long": 1.0, "short": 1.0}


@fault("reward-collapse", "kl-explosion", "entropy-collapse", "entropy-explosion", lost=True, reward="dense", prompts=4)
def reward_collapse(signals: Signals, rng: Generator, start: int, strength: float) -> None:
    """The policy forgets: reward goes, entropy rises."""
    signals.entropy *= 1.0 + ramp(signals.shape.steps, start, 20) * (2.5 + 4.0 * strength)
