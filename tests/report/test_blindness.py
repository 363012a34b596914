"""Which kind of blind a rule is: no reason of a detector is left without a decision."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import pytest

import grpo_watch.detectors
from grpo_watch.catalogue import catalogue
from grpo_watch.cli.check import check_runs, find_runs
from grpo_watch.engine.detector import Blindness, NotApplicable, NotYet, blindness_of
from grpo_watch.engine.records import Setting, Severity, Tick
from grpo_watch.engine.snapshot import RuleStatus, RuleView, RunSnapshot
from grpo_watch.report.blindness import GIVEN, blindness, coverage, coverage_line
from grpo_watch.rules.packs import load_rules
from grpo_watch.rules.rule_changes import rule_set
from tests.support.bundles import unpack
from tests.support.reports import a_report

LACKING = ("not known", "no channel", "not compared", "is not logged", "no dump holds", "set ", "neither ", "share no")
LACKING_TOO = (
    ": lora_B does not start at zero",
    "can only be compared",
    "is incomplete",
    "too short",
    "requires_grad is off",
    "were not sampled",
)


def snapshot_of(reasons: Mapping[str, str], **changes: object) -> RunSnapshot:
    rules = tuple(
        RuleView(rule, Severity.WARNING, RuleStatus.BLIND, why, blind=blindness_of(why))
        for rule, why in reasons.items()
    )
    known: dict[str, object] = {"verdict": "healthy", "rules": rules, **changes}
    return a_report(**known).snapshot  # type: ignore[arg-type]


def kind_of(reason: str, **changes: object) -> Blindness:
    snapshot = snapshot_of({"r": reason}, **changes)
    return blindness(snapshot.rules[0], snapshot)


def reasons() -> Iterator[str]:
    """Every plain text that a detector gives to ``no_data``, or that its ``blind_because`` returns."""
    for path in sorted(Path(grpo_watch.detectors.__path__[0]).rglob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        constants = {
            node.targets[0].id: node.value
            for node in tree.body
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)
        }
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "no_data":
                given = node.args[0]
                yield from _texts(constants.get(given.id, given) if isinstance(given, ast.Name) else given)
            if isinstance(node, ast.FunctionDef) and node.name == "blind_because":
                for inner in ast.walk(node):
                    if isinstance(inner, ast.Return) and inner.value is not None:
                        yield from _texts(inner.value)


def _texts(node: ast.expr) -> Iterator[str]:
    """Those that no kind was given to."""
    kinds = {"NotYet", "NotApplicable"}
    given = [each for each in ast.walk(node) if isinstance(each, ast.Call) and getattr(each.func, "id", "") in kinds]
    decided = {id(inner) for each in given for inner in ast.walk(each)}
    for each in ast.walk(node):
        if (
            id(each) not in decided
            and isinstance(each, ast.Constant)
            and isinstance(each.value, str)
            and " " in each.value.strip()
        ):
            yield each.value


def test_a_reason_without_a_kind_is_about_missing_evidence() -> None:
    """A new one is a NotYet, a NotApplicable, or belongs into the list here."""
    decided = (*GIVEN, *LACKING, *LACKING_TOO)
    found = list(reasons())
    assert len(found) > 5
    assert [reason for reason in found if not any(part in reason for part in decided)] == []


@pytest.mark.parametrize(
    ("reason", "kind"),
    [
        (NotApplicable("the run was not restarted"), Blindness.NOT_APPLICABLE),
        (NotApplicable("there is only one reward function"), Blindness.NOT_APPLICABLE),
        (NotYet("too few rows yet"), Blindness.NOT_YET),
        ("needs completions", Blindness.MISSING),
        ("num_generations is not known", Blindness.MISSING),
        ("words that nobody knows", Blindness.MISSING),
    ],
)
def test_three_kinds(reason: str, kind: Blindness) -> None:
    assert kind_of(reason) is kind


def test_a_metric_that_no_setting_of_the_framework_logs_is_not_applicable() -> None:
    gap = "needs logprob_gap_rollout, or kl_rollout"
    assert kind_of("needs memory_gib") is Blindness.NOT_APPLICABLE
    assert kind_of("needs entropy", framework="ms-swift") is Blindness.MISSING
    assert kind_of("needs kl_reference and learning_rate") is Blindness.NOT_APPLICABLE  # TRL leaves it out at beta 0
    assert kind_of("needs grad_norm") is Blindness.MISSING
    assert kind_of(gap, framework="ms-swift") is Blindness.MISSING
    assert kind_of(gap, framework="ms-swift", config={"use_vllm": Setting(value=False, origin="")}) is (
        Blindness.NOT_APPLICABLE
    )
    assert kind_of("needs memory_gib", framework=None) is Blindness.MISSING


def test_the_line_names_the_settings_that_give_most() -> None:
    snapshot = snapshot_of(
        {
            "gibberish-completions": "needs completions",
            "duplicate-completions": "needs completions",
            "entropy-collapse": "needs entropy",
            "parameters-unchanged": "needs checkpoints, or probe",
            "resume-regression": NotApplicable("the run was not restarted"),
            "repeated-prompts": NotYet("too few batches yet"),
        },
        framework="ms-swift",
    )
    found = coverage(snapshot)
    assert (found.judged, found.applicable, found.blind, found.waiting) == (0, 5, 4, ("repeated-prompts",))
    assert coverage_line(snapshot) == (
        "0 of 5 applicable rules judged, 1 needs more steps"
        " · 4 blind: set --log_completions true and --log_entropy true"
    )
    assert ", 1 needed more steps · " in coverage_line(replace(snapshot, step=100, max_steps=100))


def test_options_of_the_command_stand_apart_from_settings_of_the_launch() -> None:
    """What is set when a run is launched, and what the command is given now."""
    reasons = {"duplicate-completions": "needs completions", "repeated-prompts": "num_generations is not known"}
    shown = coverage_line(snapshot_of(reasons, framework="ms-swift"))
    assert shown.endswith("2 blind: set --log_completions true, pass --set num_generations=N")


@pytest.mark.parametrize(
    ("need", "setting", "value", "kind"),
    [
        ("checkpoints", "save_steps", 20, Blindness.NOT_YET),  # step 20: the second one comes at 40
        ("checkpoints", "save_steps", 5, Blindness.MISSING),
        ("checkpoints", "save_steps", 0, Blindness.MISSING),
        ("completions", "log_completions", False, Blindness.MISSING),
    ],
)
def test_evidence_that_is_switched_on_comes_later(need: str, setting: str, value: float, kind: Blindness) -> None:
    """Of a run at step 20."""
    assert kind_of(f"needs {need}", config={setting: Setting(value=value, origin="")}) is kind


def test_no_setting_is_named_that_is_on() -> None:
    """save_steps is 5 and no checkpoint is there at step 20: another value would not help."""
    config = {"save_steps": Setting(value=5, origin="args.json")}
    snapshot = snapshot_of({"parameters-unchanged": "needs checkpoints, or probe"}, framework="trl", config=config)
    assert coverage_line(snapshot) == "0 of 1 applicable rules judged · 1 blind"


def test_without_a_row_no_setting_is_blamed() -> None:
    assert coverage_line(snapshot_of({"r": "needs completions"}, rows=0)) == "0 rules judged, the others had no row"


def test_a_reason_of_an_older_state_counts_as_missing_evidence() -> None:
    rule = RuleView("r", Severity.WARNING, RuleStatus.BLIND, "the run was not restarted")
    assert blindness(rule, a_report().snapshot) is Blindness.MISSING


def test_bundled_runs_leave_nothing_undecided(tmp_path: Path) -> None:
    """No healthy bundled run lacks anything but what its own settings switched off."""
    folder = unpack("ms-swift-4.6.0-21b-healthy-full", tmp_path)
    rules = rule_set(load_rules(), catalogue())
    (report,) = check_runs(find_runs([str(folder)])[0], rules.rules, {}, Tick(1_798_761_600.0, live=False))
    found = coverage(report.snapshot)
    assert found.missing == {"--log_entropy true": ("entropy-collapse", "entropy-explosion")}
    blind = [rule for rule in report.snapshot.rules if rule.status is RuleStatus.BLIND]
    elsewhere = {rule.rule for rule in blind if blindness(rule, report.snapshot) is Blindness.NOT_APPLICABLE}
    assert {"resume-regression", "adapter-never-trained", "delivery-failing"} <= elsewhere
    assert found.waiting == ("repeated-completions", "step-time-regression")
