"""Finds the valid settings nearest to refused ones, by the framework's own arithmetic."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from itertools import combinations, product
from types import MappingProxyType
from typing import Any, NamedTuple

from grpo_watch.detectors.shared.batch_plan import SamplerCount
from grpo_watch.engine.records import Scalar
from grpo_watch.frameworks.launch_rules import LaunchBatch, OnTrainer, accepts, batch_of, rules_of
from grpo_watch.frameworks.launches import LaunchSettings
from grpo_watch.preflight.findings import Suggestion

SHOWN = 4
USUAL_GROUP = 8
"""Group size suggested instead of one: TRL's and ms-swift's default."""
LARGEST_GROUP = 64
TRIED: Mapping[int, int] = MappingProxyType({1: 64, 2: 10, 3: 8})
"""Values of one setting that are tried, the nearest first, by the number of settings changed together."""


class _Tried(NamedTuple):
    """An accepted change, with its distance from the given settings (smaller is nearer)."""

    distance: tuple[float, ...]
    changes: Mapping[str, Any]
    batch: LaunchBatch


def suggest(settings: LaunchSettings) -> tuple[Suggestion, ...]:
    """The nearest valid configurations: fewest changes first, then those that need no more memory per device.

    Empty if nothing is refused, or too little is known.
    """
    if not settings.facts.on_trainer:
        return tuple(_own(settings))[:SHOWN]
    batch = batch_of(settings)
    if batch is None or accepts(batch):
        return ()
    options = _options(batch)
    found: list[_Tried] = []
    for count in (1, 2, 3):
        if len(found) < SHOWN and (count <= 2 or not found):  # noqa: PLR2004  three only where two are not enough
            nearest = sorted(_accepted(batch, options, count), key=lambda tried: tried.distance)
            found += [tried for tried in nearest if count == 1 or _offers_more(batch, tried, found)]
    return tuple(_suggestion(settings, batch, tried) for tried in found[:SHOWN])


def _offers_more(batch: LaunchBatch, tried: _Tried, found: list[_Tried]) -> bool:
    """Whether a second change is worth it: no smaller change keeps as much."""
    kept = set(_kept(batch, tried.batch))
    return not any(kept <= set(_kept(batch, other.batch)) for other in found)


def _options(batch: LaunchBatch) -> dict[str, tuple[int | None, ...]]:
    """Values to try for each setting."""
    group = batch.num_generations

    def up_to_twice(value: int, least: int = 1) -> range:
        return range(1, 2 * max(value, group, least) + 1)

    options: dict[str, tuple[int | None, ...]] = {
        "per_device_train_batch_size": tuple(up_to_twice(batch.per_device_train_batch_size)),
        "gradient_accumulation_steps": tuple(up_to_twice(batch.gradient_accumulation_steps, USUAL_GROUP)),
        "num_generations": tuple(range(2, min(LARGEST_GROUP, 2 * max(group, USUAL_GROUP)) + 1)),
    }
    if batch.steps_per_generation:
        options["steps_per_generation"] = (None, *up_to_twice(batch.steps_per_generation))
    if batch.generation_batch_size:
        whole = math.lcm(batch.global_batch, group)
        nearest = max(1, round(batch.generation_batch_size / whole))
        options["generation_batch_size"] = (None, *(whole * times for times in range(max(1, nearest - 2), nearest + 3)))
    if batch.evaluates:
        options["per_device_eval_batch_size"] = tuple(up_to_twice(batch.per_device_eval_batch_size))
        if batch.num_generations_eval is not None:
            options["num_generations_eval"] = (None, *range(2, 2 * group + 1))
    return options


def _accepted(batch: LaunchBatch, options: Mapping[str, tuple[int | None, ...]], count: int) -> Iterator[_Tried]:
    """The nearest accepted values for each choice of ``count`` fields."""
    for fields in combinations(options, count):
        best: _Tried | None = None
        for values in _products(batch, fields, options):
            changes: dict[str, Any] = dict(zip(fields, values, strict=True))
            changed = replace(batch, **changes)
            distance = _distance(batch, changed, fields)
            if (best is None or distance < best.distance) and accepts(changed):
                best = _Tried(distance, changes, changed)
        if best is not None:
            yield best


def _products(
    batch: LaunchBatch, fields: tuple[str, ...], options: Mapping[str, tuple[int | None, ...]]
) -> Iterator[tuple[int | None, ...]]:
    """Every combination of near values in which each field changes."""
    near: list[list[int | None]] = []
    for field in fields:
        old = getattr(batch, field)
        changed = (value for value in options[field] if value != old)
        near.append(sorted(changed, key=partial(_apart, old))[: TRIED[len(fields)]])
    return product(*near)


def _distance(batch: LaunchBatch, changed: LaunchBatch, fields: tuple[str, ...]) -> tuple[float, ...]:
    """The distance: more memory weighs most, then another group, other completions per step, the change of values."""
    group = max(batch.num_generations, 2) if batch.num_generations > 1 else USUAL_GROUP
    moved = sum(
        _apart(getattr(batch, field) if field != "num_generations" else group, getattr(changed, field))
        for field in fields
    )
    return (
        float(_takes_more(batch, changed)),
        abs(math.log(changed.num_generations / group)) if batch.num_generations > 1 else 0.0,
        round(abs(math.log(changed.completions_per_step / batch.completions_per_step)), 6),
        moved,
    )


def _takes_more(batch: LaunchBatch, changed: LaunchBatch) -> bool:
    """Whether a device needs more memory for training or evaluation."""
    names = ("per_device_train_batch_size", "per_device_eval_batch_size")
    return any(getattr(changed, name) > getattr(batch, name) for name in names)


def _apart(old: int | None, new: int | None) -> float:
    return 0.1 if old is None or new is None else abs(math.log(new / old))


def _suggestion(settings: LaunchSettings, batch: LaunchBatch, tried: _Tried) -> Suggestion:
    changes: dict[str, Scalar] = {settings.own_name(field): value for field, value in tried.changes.items()}
    new = tried.batch
    kept = tuple(_kept(batch, new))
    size = f"{new.completions} completions per generation = {new.prompts} x {new.num_generations}"
    why = f"{size}; keeps {', '.join(kept)}" if kept else size
    return Suggestion(changes, why, _was(settings, tried.changes))


def _kept(batch: LaunchBatch, changed: LaunchBatch) -> Iterator[str]:
    """The quantities that stay as they were; less memory counts as kept."""
    if not _takes_more(batch, changed):
        yield "memory per device"
    if changed.num_generations == batch.num_generations:
        yield "group size"
    if changed.completions == batch.completions and batch.style.counting is not SamplerCount.PROMPTS:
        yield "generation batch"
    if changed.completions_per_step == batch.completions_per_step:
        yield "completions per step"


def _was(settings: LaunchSettings, names: Iterable[str]) -> dict[str, str]:
    """The old value, in words, of each setting that was not given."""
    found: dict[str, str] = {}
    for name in names:
        if settings.given(name) is None:
            value = settings.value(name)
            found[settings.own_name(name)] = "not given" if value is None else f"default {value}"
    return found


def _own(settings: LaunchSettings) -> Iterator[Suggestion]:
    """For frameworks with their own rules: the nearest value of one blamed setting that breaks none of them."""
    rules = rules_of(settings)
    if isinstance(rules, OnTrainer):
        return
    problems = tuple(rules.broken(settings))
    for name in dict.fromkeys(name for problem in problems for name in problem.settings):
        old = settings.whole(name)
        near = sorted(_near(old or 1), key=lambda value: (abs(math.log(value / (old or 1))), value))
        fitting = next((v for v in near if v != old and not any(rules.broken(settings.changed({name: v})))), None)
        if fitting is not None:
            was = _was(settings, [name])
            before = next(iter(was.values()), str(old))
            yield Suggestion({settings.own_name(name): fitting}, f"{before} → {fitting} breaks no rule", was=was)


def _near(value: int) -> set[int]:
    powers = {2**power for power in range(13)}
    multiples = {value * times for times in range(1, 9)} | {value // times for times in range(1, 9)}
    return {each for each in powers | multiples | set(range(max(1, value - 16), value + 17)) if each > 0}
