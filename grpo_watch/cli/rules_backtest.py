"""``grpo-watch rules backtest``: when the rules of a file would have fired over old runs, as table or JSON."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from grpo_watch.archive.check_run import backtest_all
from grpo_watch.catalogue import catalogue
from grpo_watch.cli.check import find_runs, processes_for
from grpo_watch.cli.rules_list import table
from grpo_watch.engine.diagnosis import Finding
from grpo_watch.errors import UsageError
from grpo_watch.pipeline.offline import ReplayedRule
from grpo_watch.report.check_document import episode, evidence
from grpo_watch.rules.packs import entries_of, load_rules

SCHEMA = "grpo-watch/rules-backtest/1"


def backtest_command(rules: Path, paths: list[str], output_format: str, jobs: int | None = None) -> int:
    """Try the rules of a file (or of every ``*.yaml`` in a folder) on runs; returns 0.

    Raises:
        UsageError: a path is missing, no run or no rule was found, or a rule file can't be used.
    """
    files = sorted(rules.glob("*.yaml")) if rules.is_dir() else [rules]
    wanted = {written.entry.name for file in files for written in entries_of(file)}
    if not wanted:
        raise UsageError(f"{rules}: contains no rules")
    detectors = catalogue()
    chosen = [rule for rule in load_rules(files, detectors=detectors) if rule.name in wanted]
    found = find_runs(paths)[0]
    if not found:
        raise UsageError(f"{', '.join(paths)}: no run found")
    replayed, problems = backtest_all(found, chosen, time.time(), processes_for(jobs, found))
    for problem in problems:
        sys.stderr.write(f"grpo-watch: {problem}\n")
    if output_format == "json":
        sys.stdout.write(json.dumps(_as_json(replayed), indent=1, ensure_ascii=False) + "\n")
    else:
        sys.stdout.write("".join(f"{line}\n" for line in _as_text(replayed)))
    return 0


def _as_json(replayed: Sequence[ReplayedRule]) -> dict[str, Any]:
    return {
        "schema": SCHEMA,
        "results": [
            {
                "rule": each.rule,
                "run": each.run,
                "steps": each.steps,
                "blind": each.blind or None,
                "broken": each.broken or None,
                "fired": [{**episode(finding), "evidence": evidence(finding)} for finding in each.findings],
            }
            for each in replayed
        ],
    }


def _as_text(replayed: Sequence[ReplayedRule]) -> Iterator[str]:
    yield from table(("rule", "runs", "fired in", "blind in", "broken in"), list(_totals(replayed)))
    fired = [(each, finding) for each in replayed for finding in each.findings]
    if fired:
        yield ""
        yield from table(
            ("rule", "severity", "first step", "fired", "resolved", "of", "run"), [_line(*pair) for pair in fired]
        )


def _totals(replayed: Sequence[ReplayedRule]) -> Iterator[tuple[str, ...]]:
    for rule in sorted({each.rule for each in replayed}):
        runs = [each for each in replayed if each.rule == rule]
        counts = (len(runs), sum(bool(r.findings) for r in runs), sum(bool(r.blind) for r in runs))
        yield (rule, *map(str, counts), str(sum(bool(r.broken) for r in runs)))


def _line(each: ReplayedRule, finding: Finding) -> tuple[str, ...]:
    resolved = "-" if finding.resolved_step is None else str(finding.resolved_step)
    steps = (str(finding.first_step), str(finding.fired_step), resolved, str(each.steps))
    return (each.rule, finding.severity.value, *steps, each.run)
