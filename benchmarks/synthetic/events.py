"""Faults that show in no metric: settings that a framework refuses, and what the watcher itself can't do."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from numpy.random import Generator

from benchmarks.synthetic.render import refused, render, with_events
from benchmarks.synthetic.shape import draw_shape
from benchmarks.synthetic.signals import no_damage, simulate
from grpo_watch.engine.records import EventKind, Item, RunConfig, RunEvent, Setting, Tick

ONE = (
    "GRPO requires at least 2 generations per prompt to calculate the advantages. You provided 1.",
    "num_generations must be greater than 1 for GRPO",
)
UNEVEN = (
    "generation_batch_size ({0}) must be divisible by num_generations ({1}).",
    "The global train batch size ({0} x 1) must be evenly divisible by the number of generations per prompt ({1}).",
)


def _group_of_one(rng: Generator) -> list[Item]:
    return refused(ONE[rng.integers(len(ONE))])


def _uneven_batch(rng: Generator) -> list[Item]:
    size = int(rng.integers(2, 17))
    return refused(UNEVEN[rng.integers(len(UNEVEN))].format(size * int(rng.integers(1, 5)) + 1, size))


def _after_a_run(rng: Generator, kind: EventKind, channel: str, text: str) -> list[Item]:
    shape = draw_shape(rng)
    items = list(render(simulate(shape, rng, no_damage(shape.steps))))
    end = items[-1].now if isinstance(items[-1], Tick) else 0.0
    events = [RunEvent(channel, kind, text=text, seen=end + 60.0 * n) for n in range(12)]
    ticks = [Tick(end + 60.0 * n + 1.0) for n in range(60)]
    return list(with_events(iter(items), *events, *ticks))


def _known_bug(rng: Generator) -> list[Item]:
    """A healthy run in a version that drops the engine's weights, with the setting that makes it do so."""
    shape = draw_shape(rng)
    settings = {"vllm_sleep_level": Setting(2, "args.json")}
    version = f"3.{int(rng.integers(3, 12))}.{int(rng.integers(0, 4))}"
    items = list(render(simulate(shape, rng, no_damage(shape.steps))))
    return [RunConfig("ms-swift", version, settings, "args.json", precedence=0), *items]


def _shrunk(rng: Generator) -> list[Item]:
    """A healthy run on what its filter left: less than half of the prompts."""
    shape, rows = draw_shape(rng), int(rng.integers(100, 100_000))
    sizes = {"rows_before_filter": rows, "rows_after_filter": int(rows * rng.uniform(0.02, 0.5))}
    printed = {name: Setting(count, "printed in the log") for name, count in sizes.items()}
    return [RunConfig(None, None, printed, "train.log"), *render(simulate(shape, rng, no_damage(shape.steps)))]


def _unreadable(rng: Generator) -> list[Item]:
    channel = "train.log" if rng.random() < 0.5 else "logging.jsonl"
    return _after_a_run(rng, EventKind.SOURCE_PROBLEM, channel, "permission denied")


def _undelivered(rng: Generator) -> list[Item]:
    return _after_a_run(rng, EventKind.DELIVERY_PROBLEM, "webhook", "connection refused")


def _rule_broken(rng: Generator) -> list[Item]:
    return _after_a_run(rng, EventKind.RULE_BROKEN, "my-rule", "KeyError: 'reward'")


EVENT_FAULTS: Mapping[str, tuple[tuple[str, ...], Callable[[Generator], list[Item]]]] = MappingProxyType(
    {
        "group-of-one": (("group-size-one",), _group_of_one),
        "batch-not-divisible": (("batch-not-divisible",), _uneven_batch),
        "known-bug": (("known-bug",), _known_bug),
        "dataset-shrunk": (("dataset-shrunk",), _shrunk),
        "source-unreadable": (("source-unreachable",), _unreadable),
        "alerts-not-delivered": (("delivery-failing",), _undelivered),
        "rule-breaks": (("rule-broken",), _rule_broken),
    }
)
