"""Draws what a run is: framework, sizes, schedule, reward and what it logs; everything else follows from it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.random import Generator

FRAMEWORKS = (("ms-swift", "4.6.0"), ("ms-swift", "3.12.6"), ("trl", "1.16.0"), ("trl", "0.24.0"))


@dataclass(frozen=True, slots=True)
class Shape:
    """One run's settings. Sizes count completions or groups, ``every`` optimizer steps per generation batch.

    ``resumed_at`` is the step of the checkpoint that a second attempt goes on from (None: one attempt). ``mood`` is how
    it learns: ``plain``, ``solved`` (nearly everything right at the end), ``bold`` (a KL of 1 to 3 that pays), ``cut``
    (most texts cut off at first, fewer and fewer later).
    """

    framework: str
    version: str
    steps: int
    logging_steps: int
    every: int
    prompts: int
    group: int
    adapter: bool
    beta: float
    rate: float
    schedule: str
    warmup: int
    reward: str
    configured: bool
    tables: bool
    save_steps: int
    entropy_logged: bool
    gap_logged: bool
    resumed_at: int | None
    mood: str

    @property
    def swift(self) -> bool:
        """Whether ms-swift writes the log."""
        return self.framework == "ms-swift"

    @property
    def generations(self) -> int:
        """Generation batches of the run."""
        return -(-self.steps // self.every)


def draw_shape(rng: Generator, **fixed: Any) -> Shape:
    """A run as people make them; ``fixed`` settings are taken as they are (such a run is ``plain``)."""
    framework, version = FRAMEWORKS[rng.integers(len(FRAMEWORKS))]
    known = {"framework": framework, "version": version, **fixed}
    adapter = bool(known.get("adapter", rng.random() < 0.4))
    logging = int(known.get("logging_steps", rng.choice([1, 1, 1, 2, 5, 10])))
    steps = int(known.get("steps", logging * int(rng.integers(60, 240) if logging < 5 else rng.integers(50, 110))))
    save = int(rng.choice([0, 1, 1])) * max(10, steps // int(rng.integers(3, 9)))
    rate = 10 ** rng.uniform(-5.3, -2.8) if adapter else 10 ** rng.uniform(-6.3, -3.7)
    drawn: dict[str, Any] = {
        "steps": steps,
        "logging_steps": logging,
        "every": int(rng.choice([1, 1, 1, 2, 4])),
        "prompts": int(rng.choice([1, 2, 4, 8, 16])),
        "group": int(rng.choice([4, 6, 8, 16])),
        "adapter": adapter,
        "beta": float(rng.choice([0.0, 0.001, 0.04, 0.04])),
        "rate": float(rate),
        "schedule": str(rng.choice(["constant", "linear", "cosine"])),
        "warmup": int(rng.choice([0, 0, 1])) * max(1, steps // int(rng.choice([10, 20, 33]))),
        "reward": str(rng.choice(["dense", "binary", "components"])),
        "configured": bool(rng.random() < 0.85),
        "tables": bool(rng.random() < 0.4),
        "save_steps": save,
        "entropy_logged": known["framework"] == "trl" or bool(rng.random() < 0.5),
        "gap_logged": bool(rng.random() < 0.4),
        "resumed_at": _resume(rng, save, steps),
        "mood": "plain" if fixed else str(rng.choice(["plain", "solved", "bold", "cut"], p=[0.85, 0.05, 0.05, 0.05])),
    }
    return Shape(**{**drawn, **known})


def _resume(rng: Generator, save: int, steps: int) -> int | None:
    """The checkpoint that one run in eight is resumed from."""
    if not save or steps <= 2 * save or rng.random() > 0.125:
        return None
    return save * int(rng.integers(1, steps // save))


def learning_rates(shape: Shape) -> np.ndarray[Any, np.dtype[np.float64]]:
    """The applied rate of every optimizer step (length ``steps``)."""
    step = np.arange(shape.steps, dtype=float)
    done = np.clip((step - shape.warmup) / max(1, shape.steps - shape.warmup), 0.0, 1.0)
    curve = {"constant": np.ones_like(done), "linear": 1.0 - done, "cosine": 0.5 * (1.0 + np.cos(np.pi * done))}
    rising = np.minimum(1.0, step / shape.warmup) if shape.warmup else np.ones_like(done)
    return shape.rate * rising * curve[shape.schedule]
