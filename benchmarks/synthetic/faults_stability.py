"""Faults of stability: numbers that diverge or are NaN."""

from __future__ import annotations

import numpy as np
from numpy.random import Generator

from benchmarks.synthetic.fault import fault, ramp, trend
from benchmarks.synthetic.signals import Signals


@fault("non-finite-metric", beta=0.04)
def metrics_become_nan(signals: Signals, rng: Generator, start: int, strength: float) -> None:
    """KL, gradient or both are NaN from some step on."""
    for series in (signals.kl, signals.grad)[: 1 + round(strength)]:
        series[start:] = np.nan


@fault("kl-explosion", "reward-collapse", beta=0.04, lost=True)
def kl_explosion(signals: Signals, rng: Generator, start: int, strength: float) -> None:
    """The policy runs away and unlearns."""
    signals.kl += ramp(signals.shape.steps, start, 15) * (2.5 + 20.0 * strength)
    signals.grad *= 1.0 + ramp(signals.shape.steps, start, 15) * 3.0


@fault("kl-explosion", from_start=True, beta=0.04, adapter=True, configured=True)
def another_reference(signals: Signals, rng: Generator, start: int, strength: float) -> None:
    """Training continues an adapter, and the reference is the base model without it."""
    signals.kl[:] = 0.5 + strength + 0.1 * signals.kl


@fault("entropy-collapse", "reward-variance-collapse", prompts=8, reward="binary", entropy_logged=True)
def entropy_collapse(signals: Signals, rng: Generator, start: int, strength: float) -> None:
    """The policy narrows to one answer: groups lose their spread."""
    shape, fallen = signals.shape, ramp(signals.shape.steps, start, 20)
    signals.entropy *= 1.0 - fallen * (0.92 + 0.07 * strength)
    part, narrow = signals.parts["accuracy"], trend(signals, start, 20)
    same = rng.random((shape.generations, shape.prompts, 1)) < 0.85 * narrow
    part[:] = np.where(same, part[:, :, :1], part)


@fault("entropy-explosion", "reward-collapse", lost=True, entropy_logged=True)
def entropy_explosion(signals: Signals, rng: Generator, start: int, strength: float) -> None:
    """The policy turns to noise."""
    signals.entropy *= 1.0 + ramp(signals.shape.steps, start, 20) * (4.0 + 6.0 * strength)
    signals.entropy += ramp(signals.shape.steps, start, 20) * 1.0


@fault("grad-norm-spike", prompts=8)
def gradient_spikes(signals: Signals, rng: Generator, start: int, strength: float) -> None:
    """The gradient leaps again and again."""
    steps = start + 4 * np.arange(6)
    signals.grad[steps] = np.median(signals.grad) * (40.0 + 400.0 * strength)


@fault("grad-norm-spike", prompts=8, steps=200, every=1, flat=True, reward="dense")
def gradient_drifts(signals: Signals, rng: Generator, start: int, strength: float) -> None:
    """The gradient grows by little and little, and nothing is learnt."""
    signals.grad *= 10.0 ** (ramp(signals.shape.steps, start, 60) * (1.4 + strength))


@fault("clip-fraction-high", every=4)
def clipping_rises(signals: Signals, rng: Generator, start: int, strength: float) -> None:
    """Most tokens leave the trust region on rows that use a batch again."""
    signals.clip += (signals.clip > 0) * ramp(signals.shape.steps, start, 10) * (0.45 + 0.4 * strength)


@fault("length-explosion", "completions-truncated", lost=True, prompts=8, steps=120)
def length_explosion(signals: Signals, rng: Generator, start: int, strength: float) -> None:
    """Texts grow until the limit cuts them off, and reward goes."""
    signals.limit *= 3.0
    signals.lengths[:] = np.minimum(
        signals.limit, signals.lengths * (1.0 + trend(signals, start, 20) * (3 + 5 * strength))
    )


@fault("length-collapse", "reward-collapse", lost=True, prompts=4)
def length_collapse(signals: Signals, rng: Generator, start: int, strength: float) -> None:
    """Texts shrink to a few tokens, and reward goes."""
    kept = 0.12 * (1.0 - strength)
    signals.lengths[:] = np.maximum(1.0, np.round(signals.lengths * (1.0 - trend(signals, start, 20) * (1.0 - kept))))


@fault("slow-degradation", "length-explosion", "completions-truncated", flat=True, prompts=8, steps=120)
def slow_degradation(signals: Signals, rng: Generator, start: int, strength: float) -> None:
    """Texts grow to two or three times their length until the limit cuts off half or more, for no gain in reward."""
    signals.limit = 2.2 * float(np.mean(signals.lengths))
    longer = signals.lengths * (1.0 + trend(signals, start, 40) * (1.6 + strength))
    signals.lengths[:] = np.minimum(signals.limit, longer)
