"""Faults of sampling: repeated, mixed, empty and cut texts, and an engine with other weights."""

from __future__ import annotations

import numpy as np
from numpy.random import Generator

from benchmarks.synthetic.fault import TRL_LATEST, batches, fault, ramp, silent
from benchmarks.synthetic.signals import Signals


def _repeat(signals: Signals, start: int, pattern: list[int]) -> None:
    where = batches(signals, start)
    signals.pattern[where] = pattern
    source = [pattern.index(number) for number in pattern]
    for part in signals.parts.values():
        part[where] = part[where][:, :, source]
    signals.lengths[where] = np.maximum(10.0, signals.lengths[where][:, :, source])


@fault("duplicate-completions", from_start=True, tables=True, prompts=4)
def shared_seed(signals: Signals, rng: Generator, start: int, strength: float) -> None:
    """Two engines with one seed: the second half of each group copies the first."""
    half = signals.shape.group // 2
    _repeat(signals, start, list(range(half)) * 2)


@fault("duplicate-completions", tables=True, prompts=4)
def shared_seed_after_restart_of_engine(signals: Signals, rng: Generator, start: int, strength: float) -> None:
    """The same from the middle on, neighbours alike."""
    _repeat(signals, start, [number // 2 for number in range(signals.shape.group)])


@fault("duplicate-completions", from_start=True, tables=True, prompts=4)
def greedy_decoding(signals: Signals, rng: Generator, start: int, strength: float) -> None:
    """One text per group."""
    _repeat(signals, start, [0] * signals.shape.group)
    silent(signals, start)


@fault("near-duplicate-completions", tables=True, prompts=4)
def near_copies(signals: Signals, rng: Generator, start: int, strength: float) -> None:
    """Texts of a group differ by a word, and earn the same."""
    group, where = signals.shape.group, batches(signals, start)
    for part in signals.parts.values():
        part[where] = part[where][:, :, :1]
    silent(signals, start)
    signals.near[where] = max(1, round(group * (0.4 - 0.25 * strength)))


@fault("mixed-prompt-group", from_start=True, tables=True, prompts=4)
def groups_of_several_prompts(signals: Signals, rng: Generator, start: int, strength: float) -> None:
    """The sampler does not repeat prompts."""
    share = 0.5 + 0.5 * strength
    signals.mixed[rng.random(signals.mixed.shape) < share] = signals.shape.group


@fault("empty-completions", tables=True, prompts=8)
def empty_completions(signals: Signals, rng: Generator, start: int, strength: float) -> None:
    """The model ends its turn at once."""
    where, group = batches(signals, start), signals.shape.group
    signals.empty[where] = rng.binomial(group, 0.6 + 0.4 * strength, signals.empty[where].shape)


@fault("gibberish-completions", tables=True, prompts=4)
def gibberish(signals: Signals, rng: Generator, start: int, strength: float) -> None:
    """Texts loop to the end."""
    where, group = batches(signals, start), signals.shape.group
    signals.looping[where] = rng.binomial(group, 0.6 + 0.4 * strength, signals.looping[where].shape)


@fault("completions-truncated", from_start=True, reward="binary")
def all_truncated(signals: Signals, rng: Generator, start: int, strength: float) -> None:
    """Hardly a text ends before the limit, and cut ones score nothing."""
    ended = rng.random(signals.lengths.shape) < 0.1 * (1.0 - strength)
    signals.limit = float(signals.lengths.max())
    signals.lengths[:] = np.where(ended, np.minimum(signals.lengths, 0.9 * signals.limit), signals.limit)
    signals.parts = {name: part * ended for name, part in signals.parts.items()}


@fault("repeated-prompts", tables=True, prompts=8)
def repeated_prompts(signals: Signals, rng: Generator, start: int, strength: float) -> None:
    """The sampler stands still, or goes round in a small circle."""
    few = max(1, round(3 - 2 * strength))
    where = batches(signals, start)
    circle = signals.prompt_ids[:few]
    signals.prompt_ids[where] = circle[np.arange(len(signals.prompt_ids[where])) % few]


@fault("repeated-completions", tables=True, prompts=8, group=8, every=1, steps=120)
def same_texts_again(signals: Signals, rng: Generator, start: int, strength: float) -> None:
    """A dataset of twelve batches, and prompts that get what they got before."""
    signals.prompt_ids[:] = signals.prompt_ids[np.arange(len(signals.prompt_ids)) % 12]
    signals.again[batches(signals, start)] = round(signals.shape.group * (0.65 + 0.35 * strength))


@fault("reward-misaligned", tables=True, prompts=8, reward="dense")
def advantages_rows_off(signals: Signals, rng: Generator, start: int, strength: float) -> None:
    """Advantages are gathered in another order than completions."""
    signals.shift[batches(signals, start)] = 1 + round(2 * strength)


@fault("stale-rollout-weights", gap_logged=True, **TRL_LATEST, schedule="constant")
def engine_never_updated(signals: Signals, rng: Generator, start: int, strength: float) -> None:
    """The engine keeps its first weights: the gap climbs as the policy learns."""
    learnt = np.maximum(0.0, np.arange(signals.shape.steps) - start) / (signals.shape.steps - start)
    signals.gap += (0.6 + 2.0 * strength) * learnt


@fault("stale-rollout-weights", gap_logged=True, **TRL_LATEST)
def engine_lost_weights(signals: Signals, rng: Generator, start: int, strength: float) -> None:
    """A wake-up without a reload: the gap leaps for good."""
    signals.gap[start:] += 1.0 + 4.0 * strength


@fault("tool-failures", **TRL_LATEST, every=1, reward="dense", flat=True)
def sandbox_down(signals: Signals, rng: Generator, start: int, strength: float) -> None:
    """Calls fail from a step on."""
    share = rng.uniform(0.0, 0.2, signals.shape.steps)
    share[start:] = np.minimum(1.0, 0.75 + 0.25 * strength + 0.2 * share[start:])
    signals.logged["tools/failure_frequency"] = share
    signals.logged["tools/call_frequency"] = rng.uniform(1.5, 2.5, signals.shape.steps)


@fault("turns-collapse", **TRL_LATEST, every=1, reward="dense", flat=True)
def tools_given_up(signals: Signals, rng: Generator, start: int, strength: float) -> None:
    """Calls fade within 20 steps."""
    left = (1.0 - strength) * 0.05 + (1.0 - ramp(signals.shape.steps, start, 20))
    signals.logged["tools/call_frequency"] = rng.uniform(1.5, 2.5, signals.shape.steps) * np.minimum(1.0, left)
    signals.logged["tools/failure_frequency"] = rng.uniform(0.0, 0.2, signals.shape.steps)


@fault("samples-too-stale", **TRL_LATEST, every=1, configured=True)
def generation_outruns_training(signals: Signals, rng: Generator, start: int, strength: float) -> None:
    """A queue without an end: samples get older than the settings allow."""
    age = rng.uniform(0.5, 2.0, signals.shape.steps) + ramp(signals.shape.steps, start, 20) * (4 + 20 * strength)
    signals.logged["sample/staleness_mean"], signals.settings["max_staleness"] = age, 4


@fault("train-rollout-mismatch", "stale-rollout-weights", from_start=True, gap_logged=True, **TRL_LATEST)
def precision_mismatch(signals: Signals, rng: Generator, start: int, strength: float) -> None:
    """Trainer and engine disagree from the start."""
    signals.gap[:] = np.maximum(0.12 + 0.3 * strength, 0.3 * signals.entropy) * np.exp(
        rng.normal(0, 0.1, len(signals.gap))
    )
