"""A detector is a trio: module, runbook and shipped rule; a missing or stale part is refused here."""

from __future__ import annotations

import ast
import inspect
import re
from pathlib import Path

import pytest

from grpo_watch.catalogue import catalogue
from grpo_watch.engine.detector import Detector
from grpo_watch.engine.metric_names import METRICS
from grpo_watch.engine.traits import Traits
from grpo_watch.rules.packs import load_rules
from grpo_watch.rules.runbook import parameter_table, runbook_of
from tests.support.runbooks import HEADINGS, examples_of, headings

DETECTORS = catalogue()
RULES = load_rules(detectors=DETECTORS)
INTERFACE = frozenset(
    [
        "kl-stuck-at-zero",
        "gradient-lost",
        "parameters-unchanged",
        "adapter-never-trained",
        "learning-rate-zero",
        "reference-follows-policy",
        "base-weights-drift",
        "ranks-diverged",
        "checkpoint-unusable",
        "duplicate-completions",
        "near-duplicate-completions",
        "mixed-prompt-group",
        "repeated-prompts",
        "completions-truncated",
        "empty-completions",
        "gibberish-completions",
        "stale-rollout-weights",
        "train-rollout-mismatch",
        "reward-variance-collapse",
        "reward-not-finite",
        "dead-reward-component",
        "reward-components-diverge",
        "reward-components-cancel",
        "reward-collapse",
        "group-size-one",
        "non-finite-metric",
        "kl-explosion",
        "entropy-collapse",
        "entropy-explosion",
        "grad-norm-spike",
        "clip-fraction-high",
        "length-explosion",
        "length-collapse",
        "run-stalled",
        "run-crashed",
        "step-time-regression",
        "memory-creep",
        "resume-regression",
        "max-steps-mismatch",
        "metric-vanished",
        "batch-not-divisible",
        "source-unreachable",
        "rule-broken",
        "delivery-failing",
    ]
)
"""The rule ids that users hold on to: they may become more, never fewer."""

EVIDENCE = frozenset({"completions", "checkpoints", "probe", "run end"})
"""What a detector may need besides metrics."""

NUMERALS = ("two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
MAX_LINES = 84
DECLARED = frozenset(Traits.__annotations__)
"""Data about a detector's findings, no code."""

every_detector = pytest.mark.parametrize("detector", [pytest.param(d, id=name) for name, d in DETECTORS.items()])


def lines_of_code(source: str) -> int:
    """Lines without blank ones, comments, docstrings, imports, and what a detector declares of its findings."""
    tree = ast.parse(source)
    skipped: set[int] = set()
    for node in ast.walk(tree):
        is_text = (
            isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
        )
        declared = isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) in DECLARED
        if is_text or declared or isinstance(node, ast.Import | ast.ImportFrom):
            skipped |= set(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return sum(
        bool(line.strip()) and not line.strip().startswith("#") and number not in skipped
        for number, line in enumerate(source.splitlines(), 1)
    )


def test_lines_of_code_counts_code_only() -> None:
    """Three of these lines are code."""
    text = '"""Doc."""\nimport os\n\n# why\nA = 1\nexplained_by = (\n    "b",\n)\n'
    text += 'def f():\n    """Doc\n    more."""\n    return os\n'
    assert lines_of_code(text) == 3


@every_detector
def test_runbook_has_the_fixed_headings_in_order(detector: type[Detector]) -> None:
    """Title, one sentence, then the sections that people learn to find."""
    runbook = runbook_of(detector)
    assert runbook.text.startswith(f"# {detector.name()}\n")
    assert runbook.summary.endswith(".")
    assert headings(runbook) == HEADINGS


@every_detector
def test_parameter_table_is_up_to_date(detector: type[Detector]) -> None:
    """`scripts/docs` writes it."""
    runbook = runbook_of(detector)
    table = parameter_table(detector.params)
    assert f"<!-- parameters:begin -->\n{table}<!-- parameters:end -->\n" in runbook.text


@every_detector
def test_examples_show_both_a_finding_and_a_quiet_run(detector: type[Detector]) -> None:
    """A rule without a counter-example is not understood."""
    expectations = [example.expect for example in examples_of(runbook_of(detector))]
    assert any(expect.fires is not None for expect in expectations), "no example fires"
    assert any(expect.quiet for expect in expectations), "no example stays quiet"


@every_detector
def test_a_rule_ships_under_the_detectors_name(detector: type[Detector]) -> None:
    """Its texts are for people: one sentence, and a fix to paste."""
    shipped = {rule.name: rule for rule in RULES}
    assert detector.name() in shipped
    assert shipped[detector.name()].detector == detector.name()


def test_no_rule_of_the_interface_is_missing() -> None:
    """A module that is deleted with its page and its rule would otherwise be missed by nobody."""
    assert sorted(INTERFACE - DETECTORS.keys()) == []


@every_detector
def test_a_detector_has_tests_of_its_own(detector: type[Detector]) -> None:
    """The third part of the trio."""
    own = Path(__file__).parent / f"test_{detector.stem()}.py"
    assert "def test_" in own.read_text(encoding="utf-8") or "from tests." in own.read_text(encoding="utf-8")


def test_every_shipped_rule_has_a_detector() -> None:
    """Shipped conditions would have no runbook."""
    assert [rule.name for rule in RULES if rule.detector is None] == []


@every_detector
def test_needs_are_canonical_metrics_or_evidence(detector: type[Detector]) -> None:
    """A misspelt need would make the rule blind for ever."""
    assert {need for alternative in detector.needs for need in alternative} <= set(METRICS) | EVIDENCE


@every_detector
def test_parameters_default_inside_their_bounds(detector: type[Detector]) -> None:
    """A default that its own check refuses could not be written into a file."""
    for name, param in detector.params.items():
        if isinstance(param.default, str):
            continue
        assert param.minimum is None or param.default >= param.minimum, name
        assert param.maximum is None or param.default <= param.maximum, name


def _explained(name: str, default: float | str, prose: str) -> bool:
    """Whether the parameter is named, or its value written as people write it."""
    written = [f"`{name}`", str(default)]
    if isinstance(default, (int, float)):
        written += [f"{default:g}", f"{default:,}", f"{100 * default:g} %"]
        written += NUMERALS[default - 2 : default - 1] if isinstance(default, int) and default > 1 else ()
    return any(re.search(rf"(?<!\w)(?<!\d[.,]){re.escape(each)}(?!\w|[.,]\d)", prose) for each in written)


@every_detector
def test_a_runbook_explains_each_parameter(detector: type[Detector]) -> None:
    """Outside the generated table: what it is for, beside the runs, versions or papers that its value comes from."""
    prose = re.sub(r"(?m)^\d+\. ", "", runbook_of(detector).text.partition("## Parameters")[0])
    assert [name for name, param in detector.params.items() if not _explained(name, param.default, prose)] == []


@every_detector
def test_a_detector_is_small(detector: type[Detector]) -> None:
    """At most 84 lines without docstrings; helpers in its module have a size of their own (``test_house_sizes``)."""
    assert lines_of_code(inspect.getsource(detector)) <= MAX_LINES


def test_every_runbook_and_module_in_the_folder_belongs_to_a_detector() -> None:
    """No orphan stays behind when a detector is renamed."""
    folder = Path(inspect.getfile(next(iter(DETECTORS.values())))).parents[1]
    assert {path.stem for path in folder.rglob("*.md")} == {detector.stem() for detector in DETECTORS.values()}


def test_each_family_is_a_pack_of_rules() -> None:
    """Who looks for a rule in ``rules/reward.yaml`` finds its detector in ``detectors/reward/``."""
    families = {detector.name(): inspect.getfile(detector).rsplit("/", 2)[1] for detector in DETECTORS.values()}
    packs = {rule.name: Path(rule.where.partition(":")[0]).stem for rule in RULES}
    assert families == packs


def test_no_detector_knows_another() -> None:
    """What two detectors share stands in a helper beside them."""
    modules = {detector.__module__ for detector in DETECTORS.values()}

    known: list[str] = []
    for detector in DETECTORS.values():
        tree = ast.parse(Path(inspect.getfile(detector)).read_text(encoding="utf-8"))
        imported = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
        known += [f"{detector.__module__} imports {each}" for each in sorted(imported & modules)]
    assert known == []
