"""``grpo-watch explain``: prints a rule's runbook and settings, the page of a preflight check, or an advisory."""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Mapping
from typing import Any

import msgspec

from grpo_watch import lazy_re as re
from grpo_watch.advisories.entries import advisories
from grpo_watch.catalogue import catalogue
from grpo_watch.cli.audit import whole
from grpo_watch.cli.terminal import UNWRAPPED, print_json
from grpo_watch.config.document import nearest
from grpo_watch.config.schema import Settings
from grpo_watch.config.settings import load_settings
from grpo_watch.engine.detector import Detector
from grpo_watch.engine.rule import Rule, general
from grpo_watch.errors import UsageError
from grpo_watch.preflight.assess import catalogue as preflight_checks
from grpo_watch.report.lines import laid_out
from grpo_watch.report.words import say
from grpo_watch.rules.packs import advisory_in, load_rules
from grpo_watch.rules.runbook import Runbook, parameters_of, runbook_for

SCHEMA = "grpo-watch/explain/1"
COMMENT = re.compile(r"<!--[^\n]{0,200}-->\n")
"""HTML comments in runbooks, which are for tools only."""


def explain_command(given: Namespace) -> int:
    """Print the runbook and settings of a rule (shipped or the user's), a check's page or an advisory; returns 0.

    Raises:
        UsageError: no rule, check or advisory has this name; suggests the nearest ones.
        ConfigError: the settings can't be used.
        RuleError: a rule file can't be used.
    """
    found, page = explained(given.name, load_settings({"rules": given.rules}, config=given.config).settings)
    if given.format == "json":
        print_json(found)
    else:
        sys.stdout.write(COMMENT.sub("", page))
    return 0


def explained(name: str, chosen: Settings) -> tuple[dict[str, Any], str]:
    """The page of a rule, a preflight check or a known bug: as JSON document and as text.

    Raises:
        UsageError: nothing has this name; suggests the nearest ones.
    """
    detectors = catalogue()
    rules = {rule.name: rule for rule in load_rules(chosen.rules, language=chosen.language, detectors=detectors)}
    bugs = [advisory for advisory in advisories() if name in {advisory.id, advisory.check}]
    if name in rules:
        rule = rules[name]
        runbook = runbook_for(rule, detectors)
        return _as_json(rule, detectors, runbook), _shown(rule, runbook)
    if name in (checks := preflight_checks()):
        page = checks[name].page.read_text(encoding="utf-8")
        return {"schema": SCHEMA, "check": name, "runbook": page}, page
    if bugs:
        known = [msgspec.to_builtins(advisory) for advisory in bugs]
        lines = (line for bug in bugs for line in whole(advisory_in(chosen.language, bug), chosen.language))
        return {"schema": SCHEMA, "advisories": known}, laid_out(lines, UNWRAPPED)
    names = [*rules, *checks, *(advisory.id for advisory in advisories())]
    near = ", ".join(rule for rule in names if name and name in rule)
    fix = (near and f"did you mean {near}?") or nearest(name, names) or "`grpo-watch rules list` lists all"
    raise UsageError(f"unknown rule {name!r} ({fix})")


def _as_json(rule: Rule, detectors: Mapping[str, type[Detector]], runbook: Runbook) -> dict[str, Any]:
    return {
        "schema": SCHEMA,
        "rule": rule.name,
        "severity": rule.severity.value,
        "for_steps": rule.for_steps,
        "keep_firing_steps": rule.keep_firing_steps,
        "min_observations": rule.min_observations,
        "summary": rule.summary,
        "hint": rule.hint,
        "hints": dict(rule.hints),
        "params": parameters_of(rule, detectors),
        "runbook": runbook.text,
    }


def _hints(rule: Rule) -> str:
    """The rule's general fix, and the fixes in the terms of frameworks that differ."""
    return "\n>\n".join(
        [f"> {general(rule.hint)}", *(f"> **{name}**: {general(hint)}" for name, hint in rule.hints.items())]
    )


def _shown(rule: Rule, runbook: Runbook) -> str:
    """The runbook with the rule's shipped settings under its summary; the summary is in the language of the rules."""
    head, separator, body = runbook.text.partition("\n## ")
    if rule.translated:
        head = f"# {rule.name}\n\n{rule.summary}"
    words = "fires after {steps} and {rows}, resolves {after} after the last"
    rows = "1 breaching row" if rule.min_observations == 1 else "{n} breaching rows"
    steps, after = (
        say(rule.language, "1 step" if number == 1 else "{n} steps", n=number)
        for number in (rule.for_steps, rule.keep_firing_steps)
    )
    breaches = say(rule.language, rows, n=rule.min_observations)
    facts = [say(rule.language, rule.severity.value)]
    facts.append(say(rule.language, words, steps=steps, rows=breaches, after=after))
    changed = ", ".join(f"{name} = {value}" for name, value in rule.params.items())
    return f"{head.rstrip()}\n\n{' · '.join([*facts, *filter(None, [changed])])}\n\n{_hints(rule)}\n{separator}{body}"
