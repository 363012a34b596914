"""Writes a run's signals as the items that its sources would give: rows with a framework's own keys and digits."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.synthetic.artefacts import checkpoints, table
from benchmarks.synthetic.signals import START, Floats, Signals, total_of
from grpo_watch.engine.records import (
    ChannelKind,
    ChannelOpened,
    EventKind,
    Item,
    RawRow,
    RunConfig,
    RunEvent,
    Setting,
    Tick,
)

EIGHT_DECIMALS = 1e-8


@dataclass(frozen=True, slots=True)
class Batches:
    """What each generation batch adds up to (first axis: batches)."""

    plain: Mapping[str, Floats]
    silent: Floats

    @classmethod
    def of(cls, signals: Signals) -> Batches:
        """Means and spreads under the keys that both frameworks share."""
        total = total_of(signals.parts, signals.weights)
        lengths = signals.lengths
        ended = np.where(lengths < signals.limit, lengths, np.nan)
        inside = np.std(total, axis=2, ddof=1)
        batch = signals.shape.version == "1.16.0"
        plain = {
            "completions/mean_length": lengths.mean(axis=(1, 2)),
            "completions/min_length": lengths.min(axis=(1, 2)),
            "completions/max_length": lengths.max(axis=(1, 2)),
            "completions/clipped_ratio": np.isnan(ended).mean(axis=(1, 2)),
            "reward": total.mean(axis=(1, 2)),
            "reward_std": _flat(total).std(axis=1, ddof=1) if batch else inside.mean(axis=1),
            "frac_reward_zero_std": (inside < 1e-9).mean(axis=1),
        }
        for name, part in signals.parts.items():
            plain[f"rewards/{name}/mean"] = part.mean(axis=(1, 2))
            plain[f"rewards/{name}/std"] = _flat(part).std(axis=1, ddof=1)
        if not signals.shape.swift:
            plain["completions/mean_terminated_length"] = np.nan_to_num(_mean_of_known(_flat(ended)))
        return cls(plain, plain["frac_reward_zero_std"])


def _flat(values: Floats) -> Floats:
    return np.asarray(values.reshape(len(values), -1))


def _mean_of_known(values: Floats) -> Floats:
    known = ~np.isnan(values)
    return np.asarray(np.where(known, values, 0.0).sum(axis=1) / np.maximum(1, known.sum(axis=1)))


def render(signals: Signals) -> Iterator[Item]:
    """All items of the run, in the order in which they would be read."""
    shape = signals.shape
    channel = "logging.jsonl" if shape.swift else "train.log"
    kind = ChannelKind.JSONL if shape.swift else ChannelKind.CONSOLE
    yield ChannelOpened(channel, kind, shows_end=True)
    if shape.configured:
        yield _config(signals)
    clock = START + np.cumsum(signals.seconds)
    yield RunEvent(channel, EventKind.STARTED, seen=START)
    batches = Batches.of(signals)
    first = range(signals.stop)
    if shape.resumed_at is None:
        yield from _attempt(signals, batches, clock, first, 0)
    else:
        yield from _attempt(signals, batches, clock, range(min(signals.stop, shape.resumed_at + 7)), 0)
        yield ChannelOpened(f"{channel}-2", kind, segment=1, shows_end=True)
        clock = clock + 900.0
        yield from _attempt(signals, batches, clock, range(shape.resumed_at, signals.stop), 1)
    last = float(clock[max(0, signals.stop - 1)])
    if signals.last_words is not None:
        yield signals.last_words
    elif signals.finished:
        yield RunEvent(channel, EventKind.FINISHED, step=signals.stop, seen=last)
    yield Tick(last + signals.silence)


def _config(signals: Signals) -> RunConfig:
    shape = signals.shape
    settings: dict[str, Any] = {
        "beta": shape.beta,
        "num_generations": shape.group,
        "per_device_train_batch_size": shape.group * shape.prompts,
        "gradient_accumulation_steps": 1,
        "steps_per_generation": shape.every,
        "num_iterations": 1,
        "world_size": 1,
        "learning_rate": shape.rate,
        "lr_scheduler_type": shape.schedule,
        "warmup_steps": shape.warmup,
        "logging_steps": shape.logging_steps,
        "max_completion_length": signals.limit,
        "reward_weights": " ".join(str(signals.weights[name]) for name in signals.parts),
        "adapter": shape.adapter,
        "temperature": 1.0,
        **signals.settings,
    }
    if shape.save_steps:
        settings["save_steps"] = shape.save_steps
    known = {name: Setting(value, "args.json") for name, value in settings.items() if value is not None}
    return RunConfig(shape.framework, shape.version, known, channel="args.json")


def _attempt(signals: Signals, batches: Batches, clock: Floats, steps: range, segment: int) -> Iterator[Item]:
    """Rows of these steps (0 is step 1) with the tables, checkpoints and events that belong between them."""
    shape, events = signals.shape, signals.events
    row_of = _swift_row if shape.swift else _trl_row
    for begin in range(steps.start - steps.start % shape.logging_steps, steps.stop, shape.logging_steps):
        window = range(begin, min(begin + shape.logging_steps, steps.stop))
        seen = float(clock[window[-1]])
        if len(window) == shape.logging_steps:
            values = row_of(signals, batches, window)
            yield _raw(signals, values, window[-1], segment, seen)
        for step in window:
            if shape.tables and step % shape.every == 0:
                yield table(signals, step // shape.every, step + 1, seen, segment)
            if shape.save_steps and (step + 1) % shape.save_steps == 0:
                yield from checkpoints(signals, step, seen, segment)
            yield from (event for at, event in events if at == step)


def _raw(signals: Signals, values: dict[str, float | None], step: int, segment: int, seen: float) -> RawRow:
    shape = signals.shape
    kept = {key: value for key, value in values.items() if signals.gone.get(key, shape.steps) > step}
    return RawRow(
        channel=("logging.jsonl" if shape.swift else "train.log") + ("-2" if segment else ""),
        kind=ChannelKind.JSONL if shape.swift else ChannelKind.CONSOLE,
        step=step + 1,
        values=kept,
        segment=segment,
        max_steps=int(signals.settings.get("printed_max_steps", shape.steps)),
        seen=seen,
        resolution=EIGHT_DECIMALS if shape.swift else None,
    )


def _values(signals: Signals, batches: Batches, window: range) -> dict[str, float]:
    """Means over the logging window; a gradient norm and a rate are the last step's."""
    shape, here = signals.shape, slice(window.start, window.stop)
    made = [step // shape.every for step in window if step % shape.every == 0]
    mean_kl = float(signals.kl[here].mean())
    values = {"loss": shape.beta * mean_kl, "grad_norm": float(signals.grad[window[-1]])}
    rate = min(window[-1] + 1, shape.steps - 1) if shape.swift else window[-1]
    values["learning_rate"] = float(signals.rate[rate])
    if made:
        values |= {key: float(series[made[0] : made[-1] + 1].mean()) for key, series in batches.plain.items()}
    if shape.beta > 0:
        values["kl"] = mean_kl
    if shape.entropy_logged:
        values["entropy"] = float(signals.entropy[here].mean())
    clipped = float(signals.clip[here].mean())
    values |= {
        "clip_ratio/region_mean": clipped,
        "clip_ratio/low_mean": clipped / 3,
        "clip_ratio/high_mean": clipped / 2,
    }
    if shape.gap_logged and made:
        values["sampling/sampling_logp_difference/mean"] = float(signals.gap[here].mean())
        values["sampling/importance_sampling_ratio/mean"] = 1.0 + float(signals.gap[here].mean()) / 10
    values |= {key: float(series[here].mean()) for key, series in signals.logged.items() if made}
    if shape.version in {"4.6.0", "1.16.0"}:
        values["step_time"] = float(signals.seconds[here].mean())
    values["epoch"] = float(signals.epoch[window[-1]])
    return values


def _swift_row(signals: Signals, batches: Batches, window: range) -> dict[str, float | None]:
    values = _values(signals, batches, window)
    if "entropy" in values:
        values["entropy/mean"] = values.pop("entropy")
    if signals.shape.version == "3.12.6":
        values["memory(GiB)"] = float(signals.memory[window[-1]])
    return {key: round(value, 8) for key, value in values.items()}


def _trl_row(signals: Signals, batches: Batches, window: range) -> dict[str, float | None]:
    values = _values(signals, batches, window)
    values["num_tokens"] = 512.0 * (window[-1] + 1)
    if signals.shape.version == "1.16.0":
        return {key: float(f"{value:.4g}") for key, value in values.items()}
    return {**values, "loss": round(values["loss"], 4)}


def refused(text: str) -> list[Item]:
    """The items of a run that its framework refused to start."""
    opened = ChannelOpened("train.log", ChannelKind.CONSOLE, shows_end=True)
    failed = RunEvent("train.log", EventKind.CONFIG_ERROR, text=text, seen=START)
    return [opened, failed, Tick(START + 5.0)]


def with_events(items: Iterator[Item], *events: Item) -> Iterator[Item]:
    """The items with more of them before the final tick."""
    before: Item | None = None
    for item in items:
        if before is not None:
            yield before
        before = item
    yield from events
    if before is not None:
        yield before
