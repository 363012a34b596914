"""Faults of the policy: updates that do not arrive, checkpoints that are broken."""

from __future__ import annotations

import numpy as np
from numpy.random import Generator

from benchmarks.synthetic.fault import TRL_LATEST, fault
from benchmarks.synthetic.signals import Signals


@fault("kl-stuck-at-zero", "parameters-unchanged", from_start=True, frozen=True, beta=0.04, steps=120)
def optimizer_without_parameters(signals: Signals, rng: Generator, start: int, strength: float) -> None:
    """Nothing is ever updated; gradients look alive."""


@fault("parameters-unchanged", frozen=True, save_steps=15, steps=150)
def frozen_midway(signals: Signals, rng: Generator, start: int, strength: float) -> None:
    """Updates stop arriving: checkpoints stay the same, KL stays where it is."""


@fault("adapter-never-trained", from_start=True, frozen=True, adapter=True, save_steps=20, steps=100)
def adapter_never_trained(signals: Signals, rng: Generator, start: int, strength: float) -> None:
    """The adapter's B matrices stay zero."""
    signals.zero_adapter = True


@fault("learning-rate-zero", from_start=True, frozen=True)
def learning_rate_zero(signals: Signals, rng: Generator, start: int, strength: float) -> None:
    """The rate is 0 from the start."""
    signals.rate[:] = 0.0


@fault("learning-rate-zero", frozen=True, schedule="constant")
def schedule_ends_too_early(signals: Signals, rng: Generator, start: int, strength: float) -> None:
    """The rate falls to 0 long before the end."""
    signals.rate[start:] = 0.0


@fault("learning-rate-zero", frozen=True, schedule="constant", configured=True)
def schedule_decays_to_nothing(signals: Signals, rng: Generator, start: int, strength: float) -> None:
    """The rate halves or worse at every step from some step on, and stays above 0."""
    signals.rate[start:] *= np.exp(-(0.7 + strength) * np.arange(len(signals.rate) - start))


@fault("learning-rate-zero", from_start=True, flat=True, warmup=0, configured=True)
def warmup_outlasts_the_run(signals: Signals, rng: Generator, start: int, strength: float) -> None:
    """A warm-up given in another unit: its end lies five to fifty runs away."""
    steps = len(signals.rate)
    signals.rate[:] = signals.shape.rate * np.arange(1, steps + 1) / (steps * (5.0 + 45.0 * strength))


@fault("learning-rate-zero", **TRL_LATEST, from_start=True, flat=True, warmup=0, configured=False)
def warmup_of_unknown_peak(signals: Signals, rng: Generator, start: int, strength: float) -> None:
    """The same in a run whose settings are not known: the rate rises until the last row."""
    warmup_outlasts_the_run.change(signals, rng, start, strength)


@fault("gradient-lost", from_start=True, flat=True, prompts=4, configured=True)
def gradient_is_one_number(signals: Signals, rng: Generator, start: int, strength: float) -> None:
    """A norm that is the same to its last digit on every row."""
    signals.grad[:] = 0.5 + rng.random()


@fault("kl-stuck-at-zero", from_start=True, flat=True, beta=0.04, configured=True)
def kl_is_a_placeholder(signals: Signals, rng: Generator, start: int, strength: float) -> None:
    """A fallback logs one KL on every row."""
    signals.kl[:] = 0.01 + 0.02 * rng.random()


@fault("gradient-lost", frozen=True, prompts=4)
def gradient_lost(signals: Signals, rng: Generator, start: int, strength: float) -> None:
    """The gradient norm is exactly 0 although groups differ."""
    signals.grad[start:] = 0.0


@fault(
    "kl-stuck-at-zero",
    from_start=True,
    flat=True,
    beta=0.04,
    adapter=False,
    steps=120,
    warmup=0,
    rate=1e-5,
    configured=True,
)
def hardly_moves(signals: Signals, rng: Generator, start: int, strength: float) -> None:
    """A clip below Adam's epsilon, or an optimizer that holds a few parameters: KL is thousands of times too small."""
    steps = np.arange(signals.shape.steps)
    signals.kl[:] = (4e-9 - 2e-9 * strength) * steps * np.exp(rng.normal(0.0, 0.3, len(steps)))


@fault("gradient-lost", from_start=True, frozen=True, prompts=4, configured=True)
def clipped_away(signals: Signals, rng: Generator, start: int, strength: float) -> None:
    """Gradients are there, and max_grad_norm leaves nothing of them."""
    signals.settings["max_grad_norm"] = 10 ** (-7.0 - 2.0 * strength)


@fault("parameters-unchanged", from_start=True, beta=0.04, save_steps=30, steps=150, rate=2e-5, adapter=False)
def saves_another_model(signals: Signals, rng: Generator, start: int, strength: float) -> None:
    """The policy learns; the checkpoints hold the model that it began with."""
    signals.version[:] = 0


@fault("reference-follows-policy", from_start=True, beta=0.04, save_steps=20, steps=120, warmup=0)
def reference_follows_policy(signals: Signals, rng: Generator, start: int, strength: float) -> None:
    """The reference shares the policy's weights: KL 0 while they move."""
    signals.kl[:] = 0.0


@fault("base-weights-drift", adapter=True, save_steps=15, steps=150)
def base_weights_drift(signals: Signals, rng: Generator, start: int, strength: float) -> None:
    """Merging and unmerging changes the frozen base."""
    signals.base = np.maximum(0, np.arange(signals.shape.steps) - start)


@fault("ranks-diverged", save_steps=15, steps=150)
def ranks_diverged(signals: Signals, rng: Generator, start: int, strength: float) -> None:
    """Two replicas go apart."""
    signals.ranks = (np.arange(signals.shape.steps) >= start).astype(np.int64)


@fault("checkpoint-unusable", from_start=True, save_steps=20, steps=100)
def checkpoint_unusable(signals: Signals, rng: Generator, start: int, strength: float) -> None:
    """Weights are cut off, empty or NaN."""
    signals.broken_checkpoints = str(rng.choice(["cut", "empty", "nan"]))


@fault("checkpoint-unusable", save_steps=20, steps=100)
def weights_of_another_model(signals: Signals, rng: Generator, start: int, strength: float) -> None:
    """Another object is saved than the one that is trained."""
    signals.broken_checkpoints = "other"
