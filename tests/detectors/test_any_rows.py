"""No rule breaks, whatever the rows hold and however a step's metrics are spread over them."""

from __future__ import annotations

import math
from collections.abc import Iterator
from random import Random
from typing import Any

import pytest

from grpo_watch.catalogue import catalogue
from grpo_watch.engine.detector import Detector
from grpo_watch.engine.engine import Engine
from grpo_watch.engine.judgement import early_signs
from grpo_watch.engine.metric_names import LABELLED, METRICS, SETTINGS, labelled
from grpo_watch.engine.record_parts import GroupSummary
from grpo_watch.engine.records import (
    CheckpointDigest,
    CheckpointKind,
    CompletionSummary,
    EndState,
    EventKind,
    MetricRow,
    Record,
    RunConfig,
    RunEvent,
    Setting,
    Stream,
    TensorDigest,
    Tick,
)
from grpo_watch.rules.packs import load_rules
from tests.support.detecting import Watched
from tests.support.records import a_group, row

DETECTORS = catalogue()
RULES = load_rules(detectors=DETECTORS)
NAMES = [*(METRICS.keys() - LABELLED), *(labelled(metric, name) for metric in LABELLED for name in ("a", "b", "total"))]
ODD = (None, math.nan, math.inf, -math.inf, 1e308, -1e308, 1e200, 0.0, -0.0, -1.0, 5e-324, 1e-30, 1e19)
USUAL = (0.0, 0.5, 1.0, 1e-3, 3.0, 100.0)
WORDS = (True, False, 0, 1, 8, -1, 1e-6, 0.04, "true", "abc", "1 0.5", "", 10**400, "inf", math.nan, -math.inf)


def rows_of(random: Random, step: int, values: dict[str, float | None], pieces: int) -> Iterator[MetricRow]:
    """One step's metrics, spread over rows; one of them is the row, the others only add to it, or none does."""
    names = random.sample(sorted(values), len(values))
    main = random.choice([0, pieces - 1, None])
    for piece in range(pieces):
        part = {name: values[name] for name in names[piece::pieces]}
        time = random.choice([None, 1e9 + 60.0 * step])
        resolution = random.choice([None, None, 1e-4, 0.1])
        supplement = main is not None and piece != main
        yield MetricRow("run", Stream.TRAIN, 1 + step // 60, step, part, part, time, time, resolution, supplement)


def a_dump(random: Random, step: int) -> CompletionSummary:
    """A batch whose groups differ in size, in what scored them and in what was looked at."""
    groups = []
    for index in range(random.choice([0, 1, 4])):
        size = random.choice([1, 2, 8])
        pattern = tuple(sorted(random.choices(range(size), k=size)))
        numbers = {text: number for number, text in enumerate(dict.fromkeys(pattern))}
        scored = [name for name in ("a", "b", "advantage") if random.random() < 0.8]
        rewards = {name: tuple(random.choices((None, 0.0, 0.7, 1.0, math.nan, math.inf), k=size)) for name in scored}
        groups.append(
            GroupSummary(
                f"p{index % 3}",
                size,
                tuple(numbers[text] for text in pattern),
                len(numbers),
                tuple(random.choices((0, 5, 400), k=size)),
                empty=random.randrange(size + 1),
                prompts=random.choice([1, 1, 2]),
                near_unique=random.choice([None, 1, len(numbers)]),
                judged=random.choice([None, 0, size]),
                looping=random.randrange(size + 1),
                rewards=rewards,
                digest=str(random.random()),
            )
        )
    return CompletionSummary("c", step, tuple(groups), complete=random.random() < 0.9)


def some_weights(random: Random, step: int) -> CheckpointDigest:
    """Tensors of any kind, some of which are there, empty, zero or not finite."""
    names = [name for name in ("m.lora_A", "m.lora_B", "m.w", "n.w") if random.random() < 0.9]
    shape = random.choice([(4, 4), (4, 4), (0, 4)])
    tensors = {
        name: TensorDigest("BF16", shape, str(random.randrange(3)), random.choice([0, 0, 3]), random.random() < 0.2)
        for name in names
    }
    kind = random.choice(list(CheckpointKind))
    shared = (tuple(names[:2]),) if names else ()
    return CheckpointDigest("k", step, f"k-{step}", random.random() < 0.9, tensors, kind, replicas=shared)


def a_run(seed: int) -> Iterator[Record]:
    """Settings, then steps whose metrics stay near a level, move to another, and are odd at times."""
    random = Random(seed)
    chosen = {name: Setting(random.choice(WORDS), "test") for name in SETTINGS if random.random() < 0.4}
    yield RunConfig(random.choice([None, "trl", "verl"]), None, chosen)
    early = {name: random.choice(USUAL) for name in NAMES}
    late = {name: early[name] if random.random() < 0.5 else random.choice(USUAL) for name in NAMES}
    used = [name for name in NAMES if random.random() < random.choice([0.3, 0.7, 1.0])] or NAMES
    turn, odd, noise = random.choice([3, 15, 99]), random.choice([0.0, 0.02, 0.2]), random.choice([0.0, 0.1, 1.0])
    pieces, step = random.choice([1, 1, 3, len(used)]), 0
    for count in range(30):
        step += random.choice([0, 1, 1, 1, 10])
        level = early if count < turn else late
        values: dict[str, float | None] = {
            name: random.choice(ODD) if random.random() < odd else level[name] * (1.0 + noise * (random.random() - 0.5))
            for name in used
            if random.random() > 0.15
        }
        yield from rows_of(random, step, values, pieces)
        if random.random() < 0.2:
            yield a_dump(random, step)
        if random.random() < 0.15:
            yield some_weights(random, step)
        if random.random() < 0.1:
            yield RunEvent("l", random.choice(list(EventKind)), random.choice([None, step]), "divisible by", seen=2e9)
            yield Tick(2e9, live=random.random() < 0.5, state=random.choice(list(EndState)))
    yield Tick(3e9, live=False)


@pytest.mark.parametrize("seed", range(16))
def test_no_rule_breaks(seed: int) -> None:
    """The engine goes on, each rule can say why it is blind, and early signs can be asked for at any time."""
    engine = Engine("run", RULES, DETECTORS)
    for record in a_run(seed):
        engine.feed(record)
        if isinstance(record, Tick):
            early_signs(engine.state)
            [monitor.detector.blind_because(engine.state) for monitor in engine.state.monitors]
    assert {monitor.rule.name: monitor.broken for monitor in engine.state.monitors if monitor.broken} == {}


def test_a_reward_that_comes_in_rows_of_its_own_may_collapse() -> None:
    """Such rows only add to the step's row, which carries no reward: there is no row to date the fall by."""
    watched = Watched("reward-collapse")
    for step in range(1, 41):
        watched.feed(row(step, loss=0.1), row(step, supplement=True, reward_mean=0.9 if step < 20 else 0.0))
    assert watched.changes[0][:1] == ("firing",)


@pytest.mark.parametrize("value", [10**400, math.inf, math.nan, "inf", "nan", "many", ""])
def test_a_setting_that_is_no_finite_number_is_not_known(value: Any) -> None:
    """Each of these was read as a number once, and raised where a rule counted with it."""
    assert Watched("max-steps-mismatch", max_steps=value, gradient_accumulation_steps=value).state.max_steps is None


def test_weights_leave_a_group_alone_that_was_not_scored() -> None:
    """A dump may hold the advantages of one group and the scores of another."""
    scored, unscored = a_group((0, 1), rewards={"a": (1.0, 0.0)}), a_group((0, 1), rewards={"advantage": (1.0, -1.0)})
    known = Watched("duplicate-completions", reward_weights="0.5").state.functions.weighed((scored, unscored))
    assert [dict(group.rewards) for group in known] == [{"a": (0.5, 0.0)}, {"advantage": (1.0, -1.0)}]


def test_a_detector_without_a_judgement_can_not_be_made() -> None:
    """It would break at the first record of the first run."""

    class Mute(Detector):
        """Forgot ``observe``."""

    with pytest.raises(TypeError, match="observe"):
        Mute()  # type: ignore[abstract]
