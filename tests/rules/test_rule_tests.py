"""Test files of rules: what they may hold, how a failure is reported, and that the shipped ones pass."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from grpo_watch.catalogue import catalogue
from grpo_watch.cli.main import run_cli
from grpo_watch.config.document import read_document
from grpo_watch.engine.records import Severity
from grpo_watch.engine.rule import Rule
from grpo_watch.errors import RuleError
from grpo_watch.rules.packs import load_rules, packs_folder
from grpo_watch.rules.rule_tests import RuleTest, problem, read_tests
from grpo_watch.rules.runbook import runbook_of
from tests.support.runbooks import examples_of

DETECTORS = catalogue()
SHIPPED = {rule.name: rule for rule in load_rules(detectors=DETECTORS)}
PATHS = sorted((packs_folder() / "tests").glob("*.yaml"))
FILES = {file.name: read_tests(file, SHIPPED) for file in PATHS}
TESTS = [test for tests in FILES.values() for test in tests]
LASTING = {rule for file in PATHS for rule in read_document(file, RuleError).value.get("never_resolve", ())}
LOW = {"low": Rule("low", when="reward_mean < 0.5", min_observations=2, severity=Severity.CRITICAL)}


@pytest.mark.parametrize("test", [pytest.param(test, id=f"{test.rule}:{test.example.place.line}") for test in TESTS])
def test_the_shipped_pack(test: RuleTest) -> None:
    assert problem(test, SHIPPED, DETECTORS) is None


@pytest.mark.parametrize("name", sorted(SHIPPED))
def test_every_shipped_rule_is_tested(name: str) -> None:
    """It fires with a severity, stays quiet, and resolves: in its runbook's examples or here; or says why never."""
    mine = [test.example.expect for test in TESTS if test.rule == name]
    mine += [example.expect for example in examples_of(runbook_of(DETECTORS[SHIPPED[name].detector or name]))]
    assert any(expect.fires is not None and expect.severity is not None for expect in mine)
    assert any(expect.quiet for expect in mine)
    assert any(expect.resolves is not None for expect in mine) is not (name in LASTING)


def test_tests_stand_in_the_file_named_like_the_pack() -> None:
    """policy.yaml is tested by tests/policy.yaml."""
    for name, tests in FILES.items():
        packs = {Path(SHIPPED[test.rule].where.rpartition(":")[0]).name for test in tests}
        assert packs == {name}


def read(folder: Path, text: str) -> tuple[RuleTest, ...]:
    file = folder / "t.yaml"
    file.write_text(text)
    return read_tests(file, LOW)


def reported(folder: Path, text: str) -> str | None:
    (test,) = read(folder, f"tests:\n  - rule: low\n    {text}\n")
    return problem(test, LOW, DETECTORS)


def test_the_alert_at_a_step(tmp_path: Path) -> None:
    """Two low rows fire at step 4; one good row resolves at 6."""
    block = 'series: {reward_mean: "1 1 0x2 1"}\n    expect: {fires: 4, resolves: 6}\n    '
    assert reported(tmp_path, f"{block}at: {{3: quiet, 4: critical, 5: critical, 6: quiet}}") is None
    wrong = reported(tmp_path, f"{block}at: {{3: quiet, 5: warning}}")
    assert wrong == f"{tmp_path}/t.yaml:2:5: expected warning at step 5, got critical"
    assert "expected critical at step 3, got quiet" in (reported(tmp_path, f"{block}at: {{3: critical}}") or "")


def test_a_wrong_expectation_says_what_happened(tmp_path: Path) -> None:
    wrong = reported(tmp_path, 'series: {reward_mean: "0x5"}\n    expect: {quiet: true}') or ""
    assert wrong.startswith(f"{tmp_path}/t.yaml:2:5: expected to stay quiet (output: ")
    assert "firing at step 2 (critical)" in wrong


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("test: []", "1:1: a test file holds a list under the key `tests:`"),
        ("tests: []\nnever: {}", "2:1: unknown key 'never'"),
        ("tests:\n  - {expect: {quiet: true}}", "2:5: a test is a mapping that names its `rule:`"),
        ("tests:\n  - {rule: lo, expect: {quiet: true}}", "2:12: there is no rule 'lo' (did you mean low?)"),
        ("tests: []\nnever_resolve: {lw: why}", "2:21: there is no rule 'lw' (did you mean low?)"),
        ("tests:\n  - {rule: low, series: {loss: 0x}, expect: {quiet: true}}", "2:32: '0x' is not a series term"),
        (
            "tests:\n  - {rule: low, serie: {}, expect: {quiet: true}}",
            "2:17: unknown key 'serie' (did you mean series?)",
        ),
        ("tests:\n  - {rule: low}", "2:5: missing key 'expect'"),
        ("tests:\n  - {rule: low, expect: {quiet: true}, at: {x: quiet}}", "2:44: at: its keys must be a whole number"),
        (
            "tests:\n  - {rule: low, expect: {quiet: true}, at: {3: loud}}",
            "2:44: at: must be 'quiet', 'info', 'warning' or",
        ),
    ],
)
def test_mistakes_have_a_place(tmp_path: Path, text: str, wrong: str) -> None:
    with pytest.raises(RuleError) as refused:
        read(tmp_path, text)
    assert f"t.yaml:{wrong}" in str(refused.value)


def test_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """0 when all pass, 1 when one fails, 2 for a file that is not there; overlays are tested with --rules."""
    rules, tests = tmp_path / "mine.yaml", tmp_path / "tests.yaml"
    rules.write_text("rules: [{name: low, when: reward_mean < 0.5, min_observations: 2}]\n")
    block = 'tests:\n  - {rule: low, name: a, series: {reward_mean: "0x5"}, expect: {fires: %d}}\n'
    tests.write_text(block % 2)
    assert run_cli(["rules", "test", str(tests), "--rules", str(rules)]) == 0
    assert capsys.readouterr().out == "1 of 1 tests passed\n"
    tests.write_text(block % 3)
    assert run_cli(["rules", "test", str(tests), "--rules", str(rules)]) == 1
    assert f"FAILED low: {tests}:2:5: expected to fire at step 3, got 2" in capsys.readouterr().out
    assert run_cli(["rules", "test", str(tests), "--rules", str(rules), "--format", "json"]) == 1
    (result,) = json.loads(capsys.readouterr().out)["tests"]
    assert (result["rule"], result["name"], "got 2" in result["problem"]) == ("low", "a", True)
    assert run_cli(["rules", "test", str(tests)]) == 2
    assert run_cli(["rules", "test", str(tmp_path / "nix.yaml")]) == 2
