"""What a fault of a synthetic run is: a change of its signals, and the rules that may name it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, TypeAlias

import numpy as np
from numpy.random import Generator

from benchmarks.synthetic.signals import Floats, Signals

Change: TypeAlias = Callable[[Signals, Generator, int, float], None]
"""Changes signals in place from a step (0 is step 1) on, with a strength from 0 (just a fault) to 1 (blatant)."""
TRL_LATEST: Mapping[str, Any] = MappingProxyType({"framework": "trl", "version": "1.16.0"})
EVERY_ROW: Mapping[str, Any] = MappingProxyType({"logging_steps": 1, "resumed_at": None})


@dataclass(frozen=True, slots=True)
class Fault:
    """A kind of fault.

    ``rules``: naming any of these is detection (at ``info`` it is not). ``from_start``: whether it is there at step 1;
    else it begins between a third and half of the run. ``frozen``: no update arrives from then on. ``lost``: what the
    policy can do fades from then on. ``flat``: the reward gains nothing from step 1 on. ``shape``: settings that the
    fault needs (what it is about must be logged).
    """

    rules: tuple[str, ...]
    change: Change
    from_start: bool = False
    frozen: bool = False
    lost: bool = False
    flat: bool = False
    shape: Mapping[str, Any] = field(default_factory=dict)


def fault(*rules: str, **settings: Any) -> Callable[[Change], Fault]:
    """Make a change a fault; keywords that are not fields of ``Fault`` are settings that it needs."""
    fields = {key: settings.pop(key) for key in ("from_start", "frozen", "lost", "flat") if key in settings}

    def made(change: Change) -> Fault:
        return Fault(rules, change, shape=MappingProxyType({**EVERY_ROW, **settings}), **fields)

    return made


def ramp(steps: int, start: int, over: float) -> Floats:
    """0 before ``start``, then rising to 1 over so many steps."""
    return np.asarray(np.clip((np.arange(steps) - start) / max(1.0, over), 0.0, 1.0))


def batches(signals: Signals, start: int) -> slice:
    """The generation batches from a step on."""
    return slice(-(-start // signals.shape.every), None)


def trend(signals: Signals, start: int, over: float) -> Floats:
    """The ramp per generation batch, to be multiplied with groups and completions."""
    shape = signals.shape
    return np.asarray(ramp(shape.steps, start, over)[:: shape.every][: shape.generations, None, None])


def silent(signals: Signals, start: int) -> None:
    """Gradients of a run whose groups have no spread."""
    signals.grad[start:] = 0.0
