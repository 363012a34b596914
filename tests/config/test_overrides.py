"""Entries with ``match``: for which runs they change what."""

from __future__ import annotations

from pathlib import Path

import pytest

from grpo_watch.engine.engine import Engine
from grpo_watch.engine.records import MetricRow, RunConfig, Severity, Stream, Transition
from grpo_watch.engine.rule import Rule
from grpo_watch.errors import RuleError
from grpo_watch.rules.packs import load_rules


def load(folder: Path, text: str) -> Rule:
    """The rule ``low``, defined in a first file and changed by a second."""
    base, overlay = folder / "base.yaml", folder / "mine.yaml"
    base.write_text("rules: [{name: low, when: reward_mean < 0.5, min_observations: 1}]\n")
    overlay.write_text(text)
    (rule,) = load_rules([base, overlay], packs=folder / "none", detectors={})
    return rule


def feed(rule: Rule, run: str, framework: str | None) -> list[Transition]:
    """What is reported of five rows of 0.1 under the rule; the framework is known before the first."""
    engine = Engine(run, [rule], {})
    transitions = engine.feed(RunConfig(framework, None, {}))
    for step in range(1, 6):
        transitions += engine.feed(MetricRow(run, Stream.TRAIN, 1, step, {"reward_mean": 0.1}))
    return transitions


def test_all_patterns_must_fit(tmp_path: Path) -> None:
    """Severity changes for TRL runs named exp… only."""
    text = 'rules: [{name: low, severity: critical, match: {framework: trl, run: "exp*"}}]'
    rule = load(tmp_path, text)
    severities = {
        (run, framework): rule.on(run, framework).severity.value
        for run in ("exp7", "other")
        for framework in ("trl", "ms-swift", None)
    }
    assert [where for where, severity in severities.items() if severity == "critical"] == [("exp7", "trl")]


def test_later_matches_win_and_plain_entries_lie_below(tmp_path: Path) -> None:
    """Order: the plain change first although it is written last, then the matches as written."""
    text = """rules:
      - {name: low, for_steps: 10, hint: first, match: {framework: "t*"}}
      - {name: low, for_steps: 20, match: {run: a}}
      - {name: low, for_steps: 5, severity: info}
    """
    rule = load(tmp_path, text)
    assert (rule.for_steps, rule.on("b", "trl").for_steps, rule.on("a", "trl").for_steps) == (5, 10, 20)
    assert (rule.on("a", "trl").hint, rule.on("a", "trl").severity) == ("first", Severity.INFO)


def test_a_rule_is_switched_off_where_the_framework_fits(tmp_path: Path) -> None:
    """The framework is known only after the run began."""
    rule = load(tmp_path, "rules: [{name: low, enabled: false, match: {framework: trl}}]")
    assert feed(rule, "a", "trl") == []
    assert [t.step for t in feed(rule, "a", "ms-swift") if t.to_state.value == "firing"] == [1]


def test_a_rule_with_match_alone_exists_only_there(tmp_path: Path) -> None:
    """A new rule for one framework is off for all others."""
    rule = load(tmp_path, "rules: [{name: low, enabled: false}]")
    assert feed(rule, "a", "trl") == []
    only = tmp_path / "only.yaml"
    only.write_text("rules: [{name: x, when: reward_mean < 1, min_observations: 1, match: {framework: trl}}]")
    (x,) = load_rules([only], packs=tmp_path / "none", detectors={})
    assert [t.to_state.value for t in feed(x, "a", "trl")] == ["firing"]
    assert feed(x, "a", None) == []


@pytest.mark.parametrize(
    ("entry", "problem"),
    [
        ("{name: low, match: {}}", "match needs `framework`, `run` or `labels`"),
        ("{name: low, match: {team: math}}", "unknown key 'team'"),
        ("{name: low, when: loss > 1, match: {run: a}}", "`when` can't differ between runs"),
        ("{name: lo, enabled: false, match: {run: a}}", "did you mean low?"),
    ],
)
def test_mistakes_are_reported(tmp_path: Path, entry: str, problem: str) -> None:
    with pytest.raises(RuleError) as refused:
        load(tmp_path, f"rules:\n  - {entry}\n")
    assert problem in str(refused.value)
    assert "mine.yaml:2:" in str(refused.value)


def late(rule: Rule) -> list[tuple[int, str, str]]:
    """Five low rows, the framework, five more: what is reported at which step."""
    engine = Engine("a", [rule], {})
    transitions: list[Transition] = []
    for step in range(1, 11):
        transitions += engine.feed(MetricRow("a", Stream.TRAIN, 1, step, {"reward_mean": 0.1}))
        if step == 5:
            transitions += engine.feed(RunConfig("trl", None, {}))
    transitions += engine.feed(MetricRow("a", Stream.TRAIN, 1, 11, {"reward_mean": 0.9}))
    return [(t.step, t.to_state.value, t.severity.value) for t in transitions if t.to_state.value != "pending"]


def test_a_framework_that_becomes_known_late(tmp_path: Path) -> None:
    """An alert goes on with the new severity; a rule that is switched off then stays where it has fired."""
    raised = load(tmp_path, "rules: [{name: low, severity: critical, match: {framework: trl}}]")
    assert late(raised) == [(1, "firing", "warning"), (6, "firing", "critical"), (11, "resolved", "critical")]
    off = load(tmp_path, "rules: [{name: low, enabled: false, match: {framework: trl}}]")
    assert late(off) == [(1, "firing", "warning"), (11, "resolved", "warning")]
    slow = load(tmp_path, "rules: [{name: low, for_steps: 7}, {name: low, enabled: false, match: {run: a}}]")
    assert late(slow) == []
