"""``grpo-watch explain RULE``: a rule's runbook, its parameters and how it ships, in the terminal or as JSON."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from grpo_watch.advisories.entries import advisories
from grpo_watch.catalogue import catalogue
from grpo_watch.config.document import nearest
from grpo_watch.config.schema import Settings
from grpo_watch.config.settings import load_settings
from grpo_watch.engine.detector import Detector, Param
from grpo_watch.engine.rule import Rule, general
from grpo_watch.errors import UsageError
from grpo_watch.rules.packs import load_rules
from grpo_watch.rules.runbook import Runbook, bounds, runbook_for

WIDTH = 100
"""Columns of running text; wider lines are hard to read."""


def explain_command(name: str, output_format: str, files: list[Path], config: Path | None, color: bool) -> int:
    """Print the runbook and active settings of a rule, shipped or the user's; returns 0.

    Raises:
        UsageError: there is no such rule (the nearest names are given).
        ConfigError: the settings can't be used.
        RuleError: a rule file can't be used.
    """
    rule, detector, runbook = _known(name, load_settings({"rules": files}, config=config).settings)
    if output_format == "json":
        params = {} if detector is None else detector.params
        sys.stdout.write(json.dumps(_as_json(rule, params, runbook), indent=2, ensure_ascii=False) + "\n")
    else:
        _print(rule, runbook, color)
    return 0


def rule_document(name: str) -> dict[str, Any]:
    """What is known of a rule, as the JSON document.

    Raises:
        UsageError: there is no such rule (the nearest names are given).
    """
    rule, detector, runbook = _known(name, load_settings().settings)
    return _as_json(rule, {} if detector is None else detector.params, runbook)


def _known(name: str, chosen: Settings) -> tuple[Rule, type[Detector] | None, Runbook]:
    detectors = catalogue()
    rules = {rule.name: rule for rule in load_rules(chosen.rules, language=chosen.language, detectors=detectors)}
    if name not in rules:
        if bugs := [advisory.id for advisory in advisories() if advisory.check == name]:
            commands = " or ".join(f"`grpo-watch advisories {bug}`" for bug in bugs)
            raise UsageError(f"{name} is no rule: preflight reports known bugs by this name ({commands} explains)")
        near = " or ".join(rule for rule in rules if name and name in rule)
        fix = (near and f"did you mean {near}?") or nearest(name, rules) or "`grpo-watch rules list` lists all"
        raise UsageError(f"unknown rule {name!r} ({fix})")
    rule = rules[name]
    detector = None if rule.when is not None else detectors[rule.detector or name]
    return rule, detector, runbook_for(rule, detectors)


def _as_json(rule: Rule, params: Mapping[str, Param], runbook: Runbook) -> dict[str, Any]:
    return {
        "schema": "grpo-watch/explain/1",
        "rule": rule.name,
        "severity": rule.severity.value,
        "for_steps": rule.for_steps,
        "keep_firing_steps": rule.keep_firing_steps,
        "min_observations": rule.min_observations,
        "summary": rule.summary,
        "hint": rule.hint,
        "hints": dict(rule.hints),
        "params": [
            {
                "name": name,
                "value": rule.params.get(name, param.default),
                "default": param.default,
                "allowed": bounds(param),
                "help": param.help,
            }
            for name, param in params.items()
        ],
        "runbook": runbook.text,
    }


def _print(rule: Rule, runbook: Runbook, color: bool) -> None:
    from rich.console import Console  # noqa: PLC0415  only the terminal needs it
    from rich.markdown import Markdown  # noqa: PLC0415

    width = min(shutil.get_terminal_size().columns, WIDTH)
    console = Console(no_color=not color, highlight=False, force_terminal=color or None, width=width)
    console.print(Markdown(_shown(rule, runbook)))


def _hints(rule: Rule) -> str:
    """What to do, in general and where a framework has other words for it."""
    return "\n>\n".join(
        [f"> {general(rule.hint)}", *(f"> **{name}**: {general(hint)}" for name, hint in rule.hints.items())]
    )


def _shown(rule: Rule, runbook: Runbook) -> str:
    """The runbook with how the rule ships under its summary; markers and metadata that only tools read are left out."""
    head, separator, body = runbook.text.partition("\n## ")
    changed = ", ".join(f"{name} = {value}" for name, value in rule.params.items())
    facts = (
        f"**{rule.severity.value}** · fires after {rule.for_steps} steps and {rule.min_observations} breaching rows · "
        f"resolves {rule.keep_firing_steps} steps after the last{f' · {changed}' if changed else ''}"
    )
    text = f"{head.rstrip()}\n\n{facts}\n\n{_hints(rule)}\n{separator}{body}"
    return "\n".join(line for line in text.splitlines() if not line.startswith("<!--"))
