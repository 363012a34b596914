"""``grpo-watch rules list``: the rules in force, what each needs and where it is from; for runs: which can see."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from grpo_watch.catalogue import GROUP, catalogue, third_party
from grpo_watch.config.schema import Settings
from grpo_watch.config.settings import load_settings
from grpo_watch.engine.detector import Detector
from grpo_watch.engine.expression import compile_expression
from grpo_watch.engine.records import Tick
from grpo_watch.engine.rule import Rule
from grpo_watch.engine.snapshot import RunSnapshot
from grpo_watch.errors import UsageError
from grpo_watch.report.view import software
from grpo_watch.rules.packs import load_rules, packs_folder

SCHEMA = "grpo-watch/rules/1"


def list_command(paths: list[str], output_format: str, rules: list[Path], config: Path | None) -> int:
    """Print every rule, disabled ones included; returns 0.

    Raises:
        UsageError: a path is missing, or the settings or a rule file can't be used.
    """
    chosen = load_settings({"rules": rules}, config=config).settings
    detectors = catalogue()
    loaded = load_rules(chosen.rules, language=chosen.language, detectors=detectors)
    document = _as_json(loaded, detectors, _snapshots(paths, loaded, chosen) if paths else [])
    if output_format == "json":
        sys.stdout.write(json.dumps(document, indent=1, ensure_ascii=False) + "\n")
    else:
        sys.stdout.write("".join(f"{line}\n" for line in _as_text(document)))
    return 0


def _snapshots(paths: list[str], rules: Sequence[Rule], settings: Settings) -> list[RunSnapshot]:
    from grpo_watch.cli.check import check_runs, find_runs  # noqa: PLC0415  half of the start-up, for named runs only

    found = find_runs(paths, settings)[0]
    if not found:
        raise UsageError(f"{', '.join(paths)}: no run found")
    return [report.snapshot for report in check_runs(found, rules, {}, Tick(time.time(), live=False), settings)]


def needs_of(rule: Rule, detectors: Mapping[str, type[Detector]]) -> tuple[tuple[str, ...], ...]:
    """Alternatives of evidence that the rule needs; none where it needs nothing in particular."""
    if rule.when is not None:
        return (tuple(name for name in compile_expression(rule.when).names if name != "step"),)
    return detectors[rule.detector or rule.name].needs


def origin_of(rule: Rule) -> str:
    """``shipped``, the package and version that brought it, or the place in the user's file."""
    foreign = third_party(GROUP).origins.get(rule.detector or "")
    if foreign is not None and rule.where == foreign:
        return foreign
    file = Path(rule.where.rpartition(":")[0])
    place = "shipped" if file.parent == packs_folder() else rule.where
    return f"{place} (detector of {foreign})" if foreign else place


def _as_json(
    rules: Sequence[Rule], detectors: Mapping[str, type[Detector]], snapshots: Sequence[RunSnapshot]
) -> dict[str, Any]:
    return {
        "schema": SCHEMA,
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
        "runs": [
            {
                "run": snapshot.run,
                "framework": snapshot.framework,
                "rules": [
                    {"rule": view.rule, "status": view.status.value, "reason": view.reason or None}
                    for view in snapshot.rules
                ],
            }
            for snapshot in snapshots
        ],
        "problems": list(third_party(GROUP).problems),
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
    for run in document["runs"]:
        yield ""
        yield f"{run['run']} ({software(run['framework'])})"
        yield from table(
            ("  rule", "status", "why"),
            [(f"  {rule['rule']}", rule["status"], rule["reason"] or "") for rule in run["rules"]],
        )
    for problem in document["problems"]:
        yield f"problem: {problem}"


def _matches(match: Mapping[str, str]) -> str:
    return " and ".join(f"{key} is {wanted}" for key, wanted in match.items())


def table(head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> Iterator[str]:
    """Aligned columns, the last one as long as it is."""
    widths = [max(len(row[column]) for row in (head, *rows)) for column in range(len(head))]
    for row in (head, *rows):
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
