"""What to do by framework: which text a run gets, and what an overlay makes of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from grpo_watch.engine.rule import Rule
from grpo_watch.frameworks.framework_tables import frameworks
from grpo_watch.rules.packs import load_rules

BASE = "rules: [{name: low, when: reward_mean < 0.5, hint: general, hints: {verl: of verl, trl: of trl}}]\n"


def load(folder: Path, overlay: str) -> Rule:
    """The rule ``low`` as a first file defines it and a second one changes it."""
    base, mine = folder / "base.yaml", folder / "mine.yaml"
    base.write_text(BASE)
    mine.write_text(overlay)
    (rule,) = load_rules([base, mine], packs=folder / "none", detectors={})
    return rule


@pytest.mark.parametrize(
    ("overlay", "shown"),
    [
        ("rules: []", {"verl": "of verl", "trl": "of trl", "openrlhf": "general", None: "general"}),
        ("rules: [{name: low, hints: {verl: mine}}]", {"verl": "mine", "trl": "of trl", None: "general"}),
        ("rules: [{name: low, hint: mine}]", {"verl": "mine", "trl": "mine", None: "mine"}),
        ("rules: [{name: low, hint: mine, hints: {trl: ours}}]", {"verl": "mine", "trl": "ours", None: "mine"}),
        ("rules: [{name: low, severity: info}]", {"verl": "of verl", "trl": "of trl", None: "general"}),
    ],
)
def test_a_new_hint_replaces_those_of_all_frameworks(
    tmp_path: Path, overlay: str, shown: dict[str | None, str]
) -> None:
    rule = load(tmp_path, overlay)
    assert {framework: rule.advice(framework) for framework in shown} == shown


def test_the_shipped_hints_name_frameworks_that_exist() -> None:
    assert {name for rule in load_rules() for name in rule.hints} <= frameworks().keys()


def test_nothing_shipped_advises_a_verl_user_to_pass_flags_of_trl() -> None:
    """verl takes no ``--learning_rate``, ``--beta``, ``--deepspeed`` and the like: its settings are dotted."""
    flags = ("--learning_rate", "--beta", "--epsilon_high", "--deepspeed", "--max_completion_length", "--top_k")
    shown = {rule.name: rule.advice("verl") for rule in load_rules()}
    assert {name: flag for name, hint in shown.items() for flag in flags if flag in hint} == {}


def test_the_shorthand_of_ms_swift_for_deepspeed_is_reported_to_its_users_only() -> None:
    shown = [(rule.name, framework) for rule in load_rules() for framework in ("trl", "unsloth", "verl", None)]
    rules = {rule.name: rule for rule in load_rules()}
    assert [place for place in shown if "--deepspeed" in rules[place[0]].advice(place[1])] == []
    assert "--deepspeed zero2" in rules["gradient-lost"].advice("ms-swift")
