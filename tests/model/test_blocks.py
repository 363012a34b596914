"""A backlog that is judged in blocks gives the transitions, findings and states that it gives row by row."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain
from math import isfinite

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from grpo_watch.engine.block import Block
from grpo_watch.engine.engine import Engine
from grpo_watch.engine.records import MetricRow, Record, RunConfig, Setting, Severity, Stream, Tick, Transition
from grpo_watch.engine.rule import Rule
from grpo_watch.engine.run_state import RunState
from grpo_watch.engine.snapshot import take_snapshot
from tests.model.test_sleep import ALONE, LEVELS, wander
from tests.support.feeding import DETECTORS, RULES, RUN

CUTS = (1, 2, 7, 33, 250, 1024)
"""Rows of the longest blocks."""
EXACTLY = 1.0
"""A level without noise, as 0 is: no group has any spread."""


def without_times(record: Record) -> Record:
    """The record; a row without its time, as most logs have none."""
    return record._replace(time=None) if isinstance(record, MetricRow) else record


def fits(row: MetricRow, before: MetricRow | None) -> bool:
    """Whether a row may be in a block (after another one)."""
    numbers = [*row.values.values(), *row.raw.values()]
    if row.stream is not Stream.TRAIN or row.supplement or not all(n is not None and isfinite(n) for n in numbers):
        return False
    if row.seen is not None or (row.time is not None and row.time <= 0.0):
        return False
    alike = before is None or (
        (tuple(before.values), before.attempt, before.resolution) == (tuple(row.values), row.attempt, row.resolution)
        and row.step > before.step
        and (before.time is None) is (row.time is None)
    )
    return alike and bool(row.values)


def a_block(rows: Sequence[MetricRow]) -> Block:
    first = rows[0]
    values = {name: [n for row in rows if (n := row.values[name]) is not None] for name in first.values}
    raw = {name: [n for row in rows if (n := row.raw[name]) is not None] for name in first.raw}
    times = [row.time for row in rows if row.time is not None]
    return Block(RUN, first.attempt, [row.step for row in rows], values, raw, first.resolution, times or None)


def cut(records: Iterable[Record], sizes: Iterator[int]) -> Iterator[Record | Block]:
    """The records, with rows in blocks of these sizes at most."""
    held: list[MetricRow] = []
    size = next(sizes)
    for record in records:
        fitting = isinstance(record, MetricRow) and fits(record, held[-1] if held else None)
        if held and (not fitting or len(held) == size):
            yield a_block(held)
            held, size = [], next(sizes)
        if isinstance(record, MetricRow) and fits(record, held[-1] if held else None):
            held.append(record)
        else:
            yield record
    if held:
        yield a_block(held)


def judged(items: Iterable[Record | Block], rules: Sequence[Rule] = RULES) -> tuple[list[Transition], RunState]:
    engine = Engine(rules, DETECTORS)
    found: list[Transition] = []
    for item in items:
        found += engine.feed_block(item) if isinstance(item, Block) else engine.feed(RUN, item)
    return found, engine.run(RUN)


def some_rules(rng: random.Random) -> Sequence[Rule]:
    """All rules as they are, or some of them, of other severities and with other whole-number parameters."""
    if rng.random() < 0.4:
        return RULES
    chosen = [rule for rule in RULES if rng.random() < rng.choice([0.1, 0.5, 0.9])]
    return [
        replace(rule, severity=rng.choice(list(Severity)), params={**rule.params, **_other_params(rule, rng)})
        for rule in chosen
    ]


def _other_params(rule: Rule, rng: random.Random) -> dict[str, int]:
    declared = {} if rule.when is not None else DETECTORS[rule.detector or rule.name].params
    whole = {name: param for name, param in declared.items() if type(param.default) is int}
    times = rng.choice([1, 1, 2, 4])
    return {name: param.default * times for name, param in whole.items() if (param.maximum or 10**9) >= 10**9}


def shown(state: RunState) -> object:
    """All that a snapshot shows, and what later rows would be judged by."""
    trend, learning = state.trend, state.learning
    tracks = [
        [getattr(track, name) for name in ("first", "start", "mean", "highest", "lowest")] + list(track.newest)
        for track in (trend.reward, trend.reward.spread, trend.silent, *(track for _, track in trend._plain))
    ]
    summed = (learning.total, learning.signal, learning.floor, learning.highest_norm, learning._pending)
    noise = (trend.reward.noise, trend.length.noise, trend.long_reward.mean, trend.long_reward.highest)
    still = (trend.reward.same, trend.reward.same_before)
    at = (state.step, state.rows, state.silent, dict(state.values), trend.entropy_by_step.highest(10**9))
    pace = [list(times) for times in (state.pace.logged, state.pace.clocked, state.pace.waits)]
    clock = (state.pace._last, state.latest_row_time, state.last_step_time)
    recent = [repr(row._replace(raw=dict(row.raw))) for row in state.recent]  # the text, because no NaN equals another
    return take_snapshot(state), tracks, summed, noise, at, pace, clock, still, recent


def of_batches(values: dict[str, float | None]) -> dict[str, float | None]:
    """The row of a framework that logs the spread of all rewards of a batch."""
    renamed = {name.replace("reward_group_std", "reward_batch_std"): value for name, value in values.items()}
    return {name: value for name, value in renamed.items() if name != "reward_zero_std_ratio"}


def of_advantages(values: dict[str, float | None]) -> dict[str, float | None]:
    """The row of a framework that logs no spread but advantages, which are 0 in a batch without any."""
    spread = values["reward_group_std"] or 0.0
    dead = (values["reward_zero_std_ratio"] or 0.0) >= EXACTLY
    highest = 0.0 if dead else spread
    return {**without_spread(values), "advantage_max": highest, "advantage_min": -highest}


def without_spread(values: dict[str, float | None]) -> dict[str, float | None]:
    """The row of a framework that says nothing of groups, nor of the reference."""
    return {name: value for name, value in values.items() if name not in {*SPREADS, "kl_reference"}}


SPREADS = ("reward_group_std", "reward_zero_std_ratio")
STYLES = (dict, dict, of_batches, of_advantages, without_spread)
"""How runs show the spread inside groups."""


def a_long_run(rng: random.Random, rows: int) -> Iterator[Record]:
    """A run with many usual rows between jumps of one metric, in which blocks are long."""
    names = [name for name in LEVELS if name not in ALONE or rng.random() < 0.04]
    level, noise = {name: LEVELS[name][0] for name in names}, rng.choice([0.05, 0.2, 0.6])
    yield RunConfig("trl", "1.16.0", {"beta": Setting(0.04, "test")})
    if rng.random() < 0.3:
        names = [name for name in names if not name.endswith("[b]")]
    resolution, attempt, step, frozen = rng.choice([None, 1e-8]), 1, 0, set[str]()
    style = rng.choice(STYLES)
    for number in range(rows):
        step += 1
        if number > 50 and rng.random() < 0.004:
            name = rng.choice(names)
            level[name] = LEVELS[name][0] * rng.choice([0.0, 0.3, 1.5, 3.0, 30.0])
            if name == "reward_zero_std_ratio":
                level[name] = rng.choice([EXACTLY, 0.9])
            if rng.random() < 0.3:
                level[name] *= rng.choice([0.4, 1.0])
                frozen.add(name)
        elif rng.random() < 0.02:
            level.update((name, usual) for name, (usual, _) in LEVELS.items() if name in names)
            frozen.clear()
        if level["kl_reference"]:
            level["kl_reference"] = LEVELS["kl_reference"][0] * min(1.0, number / 100)
        if rng.random() < 0.002:
            attempt, step = attempt + 1, max(1, step - rng.randrange(30))
        values: dict[str, float | None] = {
            name: usual
            if name in frozen or usual in {0.0, EXACTLY}
            else abs(usual + noise * LEVELS[name][1] * rng.gauss(0, 1))
            for name, usual in level.items()
            if name in names
        }
        values = style(values)
        yield MetricRow(RUN, Stream.TRAIN, attempt, step, values, dict(values), resolution=resolution)
        if rng.random() < 0.003:
            yield Tick(float(step))


@pytest.mark.parametrize("size", CUTS)
def test_a_long_run_is_judged_the_same_in_blocks(size: int) -> None:
    records = list(a_long_run(random.Random(size), 1_500))
    by_row, alone = judged(records)
    in_blocks, together = judged(cut(records, iter(lambda: size, None)))
    assert in_blocks == by_row
    assert shown(together) == shown(alone)


@given(st.integers(0, 2**32), st.booleans())
@example(seed=1, long=True)
@settings(derandomize=True, deadline=None, max_examples=12)
def test_any_run_is_judged_the_same_in_blocks(seed: int, long: bool) -> None:  # noqa: FBT001  drawn
    rng = random.Random(seed)
    rules = some_rules(rng)
    records = list(a_long_run(rng, 600) if long else wander(rng, 300))
    records = records if seed % 3 else list(map(without_times, records))
    by_row, alone = judged(records, rules)
    sizes = iter(lambda: rng.choice([1, 2, 9, 20, 64, 300, 1024]), None)
    in_blocks, together = judged(cut(records, sizes), rules)
    assert in_blocks == by_row
    assert shown(together) == shown(alone)


def healthy() -> Block:
    """2,000 rows of a run that no rule has anything to say about."""
    rng = random.Random(3)
    names = [name for name in LEVELS if name not in {*ALONE, "entropy"}]
    values = {name: [LEVELS[name][0] + 0.1 * LEVELS[name][1] * rng.random() for _ in range(2_000)] for name in names}
    values |= {"completion_truncated_ratio": [0.0] * 2_000, "kl_reference": [1e-5 * step for step in range(2_000)]}
    return Block(RUN, 1, range(1, 2_001), values, {}, None)


def test_most_rows_of_a_healthy_backlog_are_not_shown_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    one_by_one: list[Record] = []
    engine = Engine(RULES, DETECTORS)
    feed = engine.feed
    monkeypatch.setattr(engine, "feed", lambda run, record: (one_by_one.append(record), feed(run, record))[1])
    engine.feed_block(healthy())
    assert len(one_by_one) < 400
    assert [row.step for row in chain(engine.run(RUN).recent)] == list(range(2_001 - 512, 2_001))


def test_a_detector_that_a_block_breaks_is_reported_and_stops_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where a row breaks one."""

    def fails(_detector: object, _block: Block, _run: object) -> None:
        raise ZeroDivisionError("in a block")

    monkeypatch.setattr(DETECTORS["grad-norm-spike"], "absorb", fails)
    engine = Engine(RULES, DETECTORS)
    engine.feed_block(healthy())
    broken = [monitor.rule.name for monitor in engine.run(RUN).monitors if monitor.broken]
    assert broken == ["grad-norm-spike"]
    assert engine.run(RUN).step == 2_000
