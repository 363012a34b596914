"""Replays old runs under some rules and shows when each would have fired."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from grpo_watch.engine.detector import Detector
from grpo_watch.engine.diagnosis import Finding
from grpo_watch.engine.records import Tick
from grpo_watch.engine.rule import Rule
from grpo_watch.engine.rule_views import RuleStatus
from grpo_watch.pipeline.offline import read_run
from grpo_watch.sources.discovery.discover import FoundRun


@dataclass(frozen=True, slots=True)
class ReplayedRule:
    """One rule over one run: every time it fired, and why it could not see where it never judged anything."""

    rule: str
    run: str
    steps: int
    findings: tuple[Finding, ...]
    blind: str = ""
    broken: str = ""


def backtest(
    runs: Sequence[FoundRun], rules: Sequence[Rule], detectors: Mapping[str, type[Detector]], now: float
) -> Iterator[ReplayedRule]:
    """Each enabled rule over each run, run by run.

    Only these rules are judged: a finding is explained (and its severity lowered) by another one of theirs at most.

    Args:
        runs: what discovery found.
        rules: the rules to try.
        detectors: the catalogue.
        now: Unix seconds of the final tick.
    """
    for found in runs:
        snapshot = read_run(found, rules, detectors, Tick(now, live=False)).pipeline.snapshot()
        for view in snapshot.rules:
            yield ReplayedRule(
                rule=view.rule,
                run=snapshot.run,
                steps=snapshot.step,
                findings=tuple(finding for finding in snapshot.findings if finding.rule == view.rule),
                blind=view.reason if view.status is RuleStatus.BLIND else "",
                broken=view.reason if view.status is RuleStatus.BROKEN else "",
            )
