"""Makes whole synthetic runs: healthy ones, and faulty ones by kind of fault; a seed always gives the same run."""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

import numpy as np
from numpy.random import Generator

from benchmarks.synthetic import faults_policy, faults_reward, faults_rollouts, faults_run, faults_stability
from benchmarks.synthetic.events import EVENT_FAULTS
from benchmarks.synthetic.fault import Fault, ramp
from benchmarks.synthetic.render import render
from benchmarks.synthetic.shape import Shape, draw_shape
from benchmarks.synthetic.signals import Damage, Signals, no_damage, simulate, total_of, wander
from grpo_watch.engine.records import Item

FADES_OVER = 20
FAULTS: Mapping[str, Fault] = MappingProxyType(
    {
        name.replace("_", "-"): found
        for module in (faults_policy, faults_rollouts, faults_reward, faults_stability, faults_run)
        for name, found in vars(module).items()
        if isinstance(found, Fault)
    }
)
KINDS = tuple(FAULTS) + tuple(EVENT_FAULTS)
"""Every kind of fault, in the order of the table."""


@dataclass(frozen=True, slots=True)
class SyntheticRun:
    """A run's items; ``rules`` may name its fault (empty: healthy), which begins at step ``start`` (None: no step).

    ``strength`` of the fault is from 0 (just a fault) to 1 (blatant).
    """

    items: Sequence[Item]
    rules: tuple[str, ...] = ()
    start: int | None = None
    shape: Shape | None = None
    strength: float = 0.0


def healthy(seed: int) -> SyntheticRun:
    """A run without a fault."""
    rng = np.random.default_rng([seed, 0])
    shape = draw_shape(rng)
    signals = simulate(shape, rng, no_damage(shape.steps))
    log_more(signals, np.random.default_rng([seed, 1]))
    return SyntheticRun(list(render(signals)), shape=shape)


def log_more(signals: Signals, rng: Generator) -> None:
    """Add what some healthy runs of TRL log besides.

    Tool calls that get fewer or better, a few rewards that failed, and the age of samples as a queue fills up.
    """
    if signals.shape.swift:
        return
    steps = signals.shape.steps
    if rng.random() < 0.4:
        faded = np.exp(-np.arange(steps) / rng.uniform(10.0, 200.0))
        signals.logged["tools/failure_frequency"] = np.clip(
            rng.uniform(0.0, 0.3) + rng.uniform(0.0, 0.55) * faded + wander(rng, steps, 0.05, 0.5), 0.0, 1.0
        )
        fewer = rng.choice([1.0, 1.0, 0.3])
        drift = 1.0 + (fewer - 1.0) * ramp(steps, 0, steps)
        signals.logged["tools/call_frequency"] = rng.uniform(0.1, 4.0) * drift * np.exp(wander(rng, steps, 0.1, 0.5))
    if rng.random() < 0.4:
        total, every = total_of(signals.parts, signals.weights).mean((1, 2)), signals.shape.every
        held = np.interp(np.arange(steps), np.arange(len(total)) * every, total)
        lag = np.convolve(held, np.ones(9) / 9, "same")[np.maximum(0, np.arange(steps) - 5)]
        signals.logged["eval_reward"] = rng.uniform(0.6, 1.0) * lag + rng.normal(0.0, rng.uniform(0.005, 0.05), steps)
    if rng.random() < 0.2:
        rare = rng.uniform(0.0, 0.05) * signals.shape.prompts * signals.shape.group
        signals.logged["reward_failures"] = rng.poisson(rare, steps).astype(float)
    if signals.shape.version == "1.16.0" and signals.shape.every == 1 and rng.random() < 0.4:
        full = rng.uniform(0.0, 12.0)
        filling = ramp(steps, 0, rng.uniform(1.0, 40.0))
        signals.logged["sample/staleness_mean"] = np.maximum(0.0, full * filling + wander(rng, steps, 0.3, 0.6))
        if rng.random() < 0.5:
            signals.settings["max_staleness"] = int(full) + 2


def faulty(kind: str, seed: int) -> SyntheticRun:
    """A run with a fault of this kind, of a strength that the seed draws."""
    rng = np.random.default_rng([seed, zlib.crc32(kind.encode())])
    if kind in EVENT_FAULTS:
        rules, make = EVENT_FAULTS[kind]
        return SyntheticRun(make(rng), rules)
    fault = FAULTS[kind]
    shape = draw_shape(rng, **fault.shape)
    start = 0 if fault.from_start else int(rng.integers(shape.steps // 3, shape.steps // 2))
    damage = no_damage(shape.steps)
    if fault.frozen:
        damage.learns[start:] = 0.0
    if fault.lost:
        fading = np.clip((np.arange(shape.steps) - start) / FADES_OVER, 0.0, 1.0)
        damage = Damage(damage.learns, 1.0 - 0.97 * fading, least_skill=0.4)
    signals = simulate(shape, rng, replace(damage, gains=not fault.flat))
    strength = float(rng.random())
    fault.change(signals, rng, start, strength)
    return SyntheticRun(list(render(signals)), fault.rules, start + 1, shape, strength)
