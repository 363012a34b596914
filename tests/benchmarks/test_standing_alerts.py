"""Alerts stand still: a symptom that stays fires once, when its rule says, and stays.

Each kind of fault of the synthetic runs goes through the whole pipeline, in order and with late completions and
checkpoints, as slow disks and dumps that settle deliver them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from functools import cache
from typing import TypeAlias

import pytest

from benchmarks.robustness import shipped
from benchmarks.synthetic.runs import KINDS, SyntheticRun, faulty
from grpo_watch.engine.records import (
    AlertState,
    CheckpointDigest,
    CompletionSummary,
    Item,
    RawRow,
    Transition,
)
from grpo_watch.pipeline.pipeline import Pipeline

pytestmark = pytest.mark.slow

SEED = 1
LATE_ROWS = 5
COME_AND_GO = {
    "groups-of-several-prompts": "a batch of this strength may hold none",
    "gradient-spikes": "a spike is one row",
    "memory-creep": "the forecast falls back once memory has passed the limit",
}
"""Kinds whose symptom is not on every row, and why."""
STANDING = [kind for kind in KINDS if kind not in COME_AND_GO]
Evidence: TypeAlias = type[CompletionSummary | CheckpointDigest]
WITH_COMPLETIONS = frozenset(
    {
        "adapter-never-trained",
        "advantages-rows-off",
        "clipped-away",
        "clipping-rises",
        "component-sacrificed",
        "constant-reward",
        "dead-component",
        "deviation-of-nothing",
        "empty-completions",
        "entropy-collapse",
        "gibberish",
        "greedy-decoding",
        "held-out-falls",
        "kl-is-a-placeholder",
        "known-bug",
        "learning-rate-zero",
        "length-explosion",
        "masked-samples-vote",
        "metric-vanishes",
        "metrics-become-nan",
        "near-copies",
        "repeated-prompts",
        "resumed-from-base",
        "reward-collapse",
        "rewards-of-a-million",
        "same-texts-again",
        "schedule-decays-to-nothing",
        "schedule-ends-too-early",
        "shared-seed",
        "shared-seed-after-restart-of-engine",
        "dataset-shrunk",
    }
)
WITHOUT_CHECKPOINTS = frozenset(
    {
        "alerts-not-delivered",
        "all-wrong-midway",
        "batch-not-divisible",
        "group-of-one",
        "held-out-falls",
        "known-bug",
        "metrics-become-nan",
        "repeated-prompts",
        "reward-collapse",
        "rewards-of-a-million",
        "rule-breaks",
        "sandbox-down",
        "shared-seed",
        "slow-steps",
        "source-unreadable",
        "stalled",
        "verifier-times-out",
        "warmup-of-unknown-peak",
    }
)
COMES_LATE: list[tuple[str, Evidence]] = [
    *((kind, CompletionSummary) for kind in STANDING if kind in WITH_COMPLETIONS),
    *((kind, CheckpointDigest) for kind in STANDING if kind not in WITHOUT_CHECKPOINTS),
]
"""Kinds whose run has the evidence, listed because to make every run takes seconds."""


@cache
def run_of(kind: str) -> SyntheticRun:
    """The same run for each test."""
    return faulty(kind, SEED)


@cache
def changes_of(kind: str, evidence: Evidence | None = None) -> list[Transition]:
    """What the rules that may name the fault say, firing and resolved; ``evidence``: that comes late."""
    run = run_of(kind)
    items = run.items if evidence is None else late(run.items, evidence)
    pipeline = Pipeline("run", *shipped())
    changes = (change for item in items for change in pipeline.feed(item))
    ends = {AlertState.FIRING, AlertState.RESOLVED}
    return [change for change in changes if change.rule in run.rules and change.to_state in ends]


def late(items: Sequence[Item], kind: Evidence) -> Iterator[Item]:
    """The same items, those of a kind some rows later, the last ones before what ends the run."""
    waiting, rows = deque[tuple[int, Item]](), 0
    last = max((at for at, item in enumerate(items) if isinstance(item, RawRow)), default=-1)
    for at, item in enumerate(items):
        if isinstance(item, kind):
            waiting.append((rows + LATE_ROWS, item))
            continue
        while waiting and (waiting[0][0] <= rows or at > last):
            yield waiting.popleft()[1]
        yield item
        rows += isinstance(item, RawRow)
    yield from (item for _, item in waiting)


@pytest.mark.parametrize("kind", STANDING)
def test_a_symptom_that_stays_fires_once_and_stays(kind: str) -> None:
    """From the first alert on, which keeps its distance, one of the rules that name the fault fires at any time."""
    changes, firing = changes_of(kind), set[tuple[str, str]]()
    rules = {rule.name: rule for rule in shipped()[0]}
    assert changes
    for change in changes:
        place = (change.rule, change.key)
        if change.to_state is AlertState.FIRING:
            waited = change.step - change.first_step
            assert change.reading.immediate or waited >= rules[change.rule].for_steps
            assert place not in firing or change.from_state is AlertState.FIRING
            firing.add(place)
        else:
            firing.discard(place)
            assert firing, f"{change.rule} was taken back at step {change.step}"


@pytest.mark.parametrize(("kind", "evidence"), COMES_LATE)
def test_evidence_that_comes_late_gives_the_same_alerts(kind: str, evidence: Evidence) -> None:
    """Each fires, gets worse and resolves as often, and at the same step but for what the evidence was late by."""
    assert has(kind, evidence)
    changes, later = sorted(map(summary, changes_of(kind))), sorted(map(summary, changes_of(kind, evidence)))
    assert [change[:-1] for change in later] == [change[:-1] for change in changes]
    assert all(abs(then[-1] - now[-1]) <= LATE_ROWS for then, now in zip(later, changes, strict=True))


def test_every_kind_with_the_evidence_is_tried() -> None:
    """The lists of kinds are complete."""
    kinds = (CompletionSummary, CheckpointDigest)
    assert [(kind, evidence) for evidence in kinds for kind in STANDING if has(kind, evidence)] == COMES_LATE


def has(kind: str, evidence: Evidence) -> bool:
    """Whether the run of a kind has such evidence."""
    return any(isinstance(item, evidence) for item in run_of(kind).items)


def summary(change: Transition) -> tuple[str, str, str, str, int]:
    """Which alert changed in which way, and at which step."""
    return change.rule, change.key, change.from_state.value, change.to_state.value, change.step
