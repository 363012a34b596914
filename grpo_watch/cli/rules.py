"""``grpo-watch rules``: lists the rules in force, lints and tests rule files, and backtests them on runs."""

from __future__ import annotations

import sys
import time
from argparse import Namespace
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from grpo_watch.catalogue import catalogue
from grpo_watch.cli.terminal import print_json
from grpo_watch.config.settings import load_settings
from grpo_watch.engine.detector import Detector
from grpo_watch.engine.expression import compile_expression
from grpo_watch.engine.records import Tick
from grpo_watch.engine.rule import Rule
from grpo_watch.engine.snapshot import RuleStatus, RuleView, RunSnapshot
from grpo_watch.errors import RuleError, UsageError
from grpo_watch.frameworks.framework_tables import frameworks
from grpo_watch.report.check_document import episode, evidence
from grpo_watch.report.lines import aligned
from grpo_watch.rules.packs import entries_of, lint, load_rules, packs_folder
from grpo_watch.rules.rule_tests import problem, read_tests

LIST_SCHEMA, LINT_SCHEMA = "grpo-watch/rules/1", "grpo-watch/rules-lint/1"
TEST_SCHEMA, BACKTEST_SCHEMA = "grpo-watch/rules-test/1", "grpo-watch/rules-backtest/1"
NAMED = 5
"""Most files named in one line."""


def list_command(given: Namespace) -> int:
    """Print every rule, disabled ones included; returns 0.

    Raises:
        ConfigError: the settings can't be used.
        RuleError: a rule file can't be used.
    """
    chosen = load_settings({"rules": given.rules}, config=given.config).settings
    detectors = catalogue()
    document = _as_json(load_rules(chosen.rules, language=chosen.language, detectors=detectors), detectors)
    _write(document, _as_text(document), given.format)
    return 0


def _write(document: Mapping[str, Any], lines: Iterator[str], output_format: str) -> None:
    if output_format == "json":
        print_json(document)
    else:
        sys.stdout.write("".join(f"{line}\n" for line in lines))


def needs_of(rule: Rule, detectors: Mapping[str, type[Detector]]) -> tuple[tuple[str, ...], ...]:
    """The alternative sets of metrics the rule needs; empty if it needs nothing in particular."""
    if rule.when is not None:
        return (tuple(name for name in compile_expression(rule.when).names if name != "step"),)
    return detectors[rule.detector or rule.name].needs


def origin_of(rule: Rule) -> str:
    """``shipped``, or the rule's place in the user's file."""
    return "shipped" if Path(rule.where.rpartition(":")[0]).parent == packs_folder() else rule.where


def _as_json(rules: Sequence[Rule], detectors: Mapping[str, type[Detector]]) -> dict[str, Any]:
    return {
        "schema": LIST_SCHEMA,
        "rules": [
            {
                "rule": rule.name,
                "severity": rule.severity.value,
                "enabled": rule.enabled,
                "needs": [list(alternative) for alternative in needs_of(rule, detectors)],
                "origin": origin_of(rule),
                "overrides": [dict(override.match) for override in rule.overrides],
            }
            for rule in rules
        ],
    }


def _as_text(document: Mapping[str, Any]) -> Iterator[str]:
    rows = [
        (
            rule["rule"],
            rule["severity"] if rule["enabled"] else "off",
            " | ".join(" + ".join(alternative) for alternative in rule["needs"]) or "-",
            rule["origin"] + "".join(f", changed where {_matches(match)}" for match in rule["overrides"]),
        )
        for rule in document["rules"]
    ]
    yield from table(("rule", "severity", "origin", "needs"), [(a, b, d, c) for a, b, c, d in rows])


def _matches(match: Mapping[str, str]) -> str:
    return " and ".join(f"{key} is {wanted}" for key, wanted in match.items())


def table(head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> Iterator[str]:
    """Aligned columns; the last column is not padded."""
    return (line.plain.rstrip() for line in aligned([head, *rows]))


def lint_command(given: Namespace) -> int:
    """Print the problems of the files, or of the rules in effect; returns 1 if there is any, else 0.

    Raises:
        UsageError: a file is missing.
    """
    _require(given.files)
    files = given.files or [*_shipped(), *load_settings(config=given.config).settings.rules]
    problems = lint(files, sorted(frameworks()))
    lines = map(str, problems) if problems else iter([f"no problems in {_named(files)}"])
    _write({"schema": LINT_SCHEMA, "problems": [_problem(error) for error in problems]}, lines, given.format)
    return int(bool(problems))


def test_command(given: Namespace) -> int:
    """Run every test, or the tests of the shipped rules, under the rules in effect; returns 1 if one fails, else 0.

    ``given.rules`` are added to the shipped rules; by default the rule files of the settings are.

    Raises:
        UsageError: a file is missing, or a test or rule file can't be read.
    """
    _require(given.files)
    overlays = given.rules or load_settings(config=given.config).settings.rules
    detectors = catalogue()
    rules = {rule.name: rule for rule in load_rules(overlays, detectors=detectors)}
    tests = [test for file in given.files or _shipped("tests") for test in read_tests(file, rules)]
    results = [(test, problem(test, rules, detectors)) for test in tests]
    failed = [f"FAILED {test.rule}: {wrong}" for test, wrong in results if wrong is not None]
    listed = [
        {"rule": test.rule, "name": test.name, "place": str(test.example.place), "problem": wrong}
        for test, wrong in results
    ]
    passed = f"{len(results) - len(failed)} of {len(results)} tests passed"
    _write({"schema": TEST_SCHEMA, "tests": listed}, iter([*failed, passed]), given.format)
    return int(bool(failed))


def _shipped(folder: str = ".") -> list[Path]:
    """The shipped rule files, or those of their tests, sorted.

    Raises:
        UsageError: the installation has none.
    """
    found = sorted((packs_folder() / folder).glob("*.yaml"))
    if not found:
        raise UsageError(f"no shipped rule files in {packs_folder() / folder}; name a FILE")
    return found


def _named(files: Sequence[Path]) -> str:
    return ", ".join(map(str, files)) if len(files) <= NAMED else f"{len(files)} rule files"


def _require(files: Sequence[Path]) -> None:
    for file in files:
        if not file.is_file():
            raise UsageError(f"{file}: no such file")


def _problem(error: RuleError) -> dict[str, object]:
    place = error.place
    return {
        "file": place.file if place else None,
        "line": place.line if place else None,
        "column": place.column if place else None,
        "message": error.message,
        "fix": error.fix,
    }


def backtest_command(given: Namespace) -> int:
    """Replay runs under the rules of a file (or of every ``*.yaml`` in a folder) and print the findings; returns 0.

    Only these rules are judged: findings are explained, and their severity lowered, only by findings of these rules.

    Raises:
        UsageError: a path is missing, no run or no rule was found, or a rule file can't be used.
    """
    from grpo_watch.cli.check import find_runs  # noqa: PLC0415  half of the start-up, for runs only
    from grpo_watch.pipeline.offline import read_run  # noqa: PLC0415  the same

    files = sorted(given.rules.glob("*.yaml")) if given.rules.is_dir() else [given.rules]
    wanted = {written.entry.name for file in files for written in entries_of(file)}
    if not wanted:
        raise UsageError(f"{given.rules}: contains no rules")
    chosen = [rule for rule in load_rules(files, detectors=catalogue()) if rule.name in wanted]
    found = find_runs(given.paths)[0]
    if not found:
        raise UsageError(f"{', '.join(given.paths)}: no run found")
    tick = Tick(time.time(), live=False)
    snapshots = (read_run(run, chosen, catalogue(), tick).pipeline.snapshot() for run in found)
    results = [_result(snapshot, view) for snapshot in snapshots for view in snapshot.rules]
    _write({"schema": BACKTEST_SCHEMA, "results": results}, _tables(results), given.format)
    return 0


def _result(snapshot: RunSnapshot, view: RuleView) -> dict[str, Any]:
    """One rule on one run: every episode, and the reason if the rule stayed blind throughout."""
    findings = (finding for finding in snapshot.findings if finding.rule == view.rule)
    return {
        "rule": view.rule,
        "run": snapshot.run,
        "steps": snapshot.step,
        "blind": (view.reason or None) if view.status is RuleStatus.BLIND else None,
        "broken": (view.reason or None) if view.status is RuleStatus.BROKEN else None,
        "fired": [{**episode(finding), "evidence": evidence(finding)} for finding in findings],
    }


def _tables(results: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    yield from table(("rule", "runs", "fired in", "blind in", "broken in"), list(_totals(results)))
    if fired := [_line(each, one) for each in results for one in each["fired"]]:
        yield ""
        yield from table(("rule", "severity", "first step", "fired", "resolved", "of", "run"), fired)


def _totals(results: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, ...]]:
    for rule in sorted({each["rule"] for each in results}):
        runs = [each for each in results if each["rule"] == rule]
        yield (
            rule,
            str(len(runs)),
            *(str(sum(bool(run[what]) for run in runs)) for what in ("fired", "blind", "broken")),
        )


def _line(each: Mapping[str, Any], fired: Mapping[str, Any]) -> tuple[str, ...]:
    resolved = "-" if fired["resolved_step"] is None else str(fired["resolved_step"])
    steps = (str(fired["first_step"]), str(fired["fired_step"]), resolved, str(each["steps"]))
    return (each["rule"], fired["severity"], *steps, each["run"])
