"""What the shipped detectors declare about each other: names that exist, no cycles, and which rule explains which."""

from __future__ import annotations

import pytest

from grpo_watch.catalogue import catalogue
from grpo_watch.engine.diagnosis import causes_of, diagnose
from grpo_watch.engine.engine import Episode, Monitor
from grpo_watch.engine.records import Reading, Severity, Verdict
from grpo_watch.engine.traits import WasteKind
from tests.support.records import a_rule

DETECTORS = catalogue()
CAUSES = causes_of(DETECTORS)


def test_every_rule_that_is_named_is_a_detector() -> None:
    """A misspelt name would explain nothing."""
    named = {name for each in DETECTORS.values() for name in each.explained_by}
    named |= {name for each in DETECTORS.values() for name in (*each.explained_only_as, each.withdrawn_by) if name}
    assert named <= set(DETECTORS)


def without_cycles(causes: dict[str, tuple[str, ...]]) -> bool:
    """Whether taking away, again and again, the rules without a cause that is left leaves none."""
    left = {rule: set(named) for rule, named in causes.items()}
    while free := [rule for rule, named in left.items() if not named & left.keys()]:
        for rule in free:
            del left[rule]
    return not left


def test_causes_have_no_cycle() -> None:
    assert without_cycles(CAUSES)
    assert not without_cycles({**CAUSES, "non-finite-metric": ("run-stalled",)})


def test_what_withdraws_a_finding_is_its_first_explanation() -> None:
    assert all(each.explained_by[:1] == (each.withdrawn_by,) for each in DETECTORS.values() if each.withdrawn_by)


def test_a_cause_that_needs_a_kind_is_one_of_the_causes() -> None:
    assert all(set(each.explained_only_as) <= set(each.explained_by) for each in DETECTORS.values())


def test_a_symptom_of_a_collapse_costs_steps_at_the_latest_when_it_is_critical() -> None:
    """A second sign agrees that the policy goes the wrong way."""
    kinds = {each.wastes for each in DETECTORS.values() if each.part_of_collapse}
    assert kinds <= {WasteKind.STEPS, WasteKind.STEPS_IF_CRITICAL}


def diagnosed(*rules: str) -> dict[str, tuple[Severity, str | None]]:
    """Severity and cause of each, where all are critical at the same steps."""
    monitors = [Monitor(a_rule(rule), DETECTORS) for rule in rules]
    for monitor in monitors:
        monitor.episodes = [Episode("", 1, 2, 10, None, Severity.CRITICAL, Reading(Verdict.BREACH))]
    return {each.rule: (each.severity, each.caused_by) for each in diagnose(monitors)}


@pytest.mark.parametrize(
    ("effect", "cause"),
    [
        ("run-crashed", "group-size-one"),
        ("run-crashed", "batch-not-divisible"),
        ("run-crashed", "non-finite-metric"),
        ("run-crashed", "memory-creep"),
        ("run-stalled", "run-crashed"),
        ("train-rollout-mismatch", "non-finite-metric"),
        ("train-rollout-mismatch", "stale-rollout-weights"),
        ("train-rollout-mismatch", "entropy-explosion"),
        ("step-time-regression", "length-explosion"),
        ("memory-creep", "length-explosion"),
        ("reward-not-finite", "non-finite-metric"),
        ("metric-vanished", "reward-not-finite"),
        ("clip-fraction-high", "kl-explosion"),
        ("empty-completions", "stale-rollout-weights"),
        ("gradient-lost", "non-finite-metric"),
        ("parameters-unchanged", "adapter-never-trained"),
    ],
)
def test_the_cause_explains_the_effect_and_never_the_other_way(effect: str, cause: str) -> None:
    """Both critical, at the same steps, in both orders of the rules: the effect becomes a warning."""
    for names in ((effect, cause), (cause, effect)):
        assert diagnosed(*names) == {cause: (Severity.CRITICAL, None), effect: (Severity.WARNING, cause)}
