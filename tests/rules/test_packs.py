"""Rule packs and overlays: what they may say, and how mistakes are reported."""

from __future__ import annotations

from pathlib import Path
from types import MappingProxyType

import pytest

from grpo_watch.engine.detector import Detector, Param, param
from grpo_watch.engine.records import Severity
from grpo_watch.engine.rule import Rule
from grpo_watch.errors import RuleError
from grpo_watch.rules.packs import load_rules, packs_folder


class _Jump(Detector):
    params = MappingProxyType(  # as a package's detectors may give them too
        {"factor": Param(1.0, "replaced below"), "metric": Param("loss", "what to watch")}
    )


class _Spike(_Jump):
    factor: float = param(2.0, "times the median", minimum=1, maximum=100)
    window: int = param(20, "rows", minimum=2)
    strict: bool = param(default=False, says="count equal values")


DETECTORS = {"spike": _Spike, "plain": Detector}

PACK = """
rules:
  - name: spike
    detector: spike
    params: {factor: 3, window: 1e1}
    for_steps: 8
    severity: critical
    summary: It spiked.
  - name: plain
    detector: plain
"""


@pytest.fixture
def packs(tmp_path: Path) -> Path:
    folder = tmp_path / "packs"
    folder.mkdir()
    (folder / "a.yaml").write_text(PACK)
    (folder / "b.yaml").write_text("# nothing yet\n")
    (folder / "tests").mkdir()
    (folder / "tests" / "c.yaml").write_text("not: a pack")
    return folder


def load(packs: Path, *overlays: str) -> dict[str, Rule]:
    files = []
    for number, text in enumerate(overlays):
        files.append(packs.parent / f"mine{number}.yaml")
        files[-1].write_text(text)
    return {rule.name: rule for rule in load_rules(files, detectors=DETECTORS, packs=packs)}


def refusal(packs: Path, *overlays: str) -> str:
    with pytest.raises(RuleError) as refused:
        load(packs, *overlays)
    return str(refused.value).removeprefix(f"{packs.parent}/")


def test_a_pack_gives_rules_with_types_defaults_and_places(packs: Path) -> None:
    """Params take their parameter's type; where names the line of the rule."""
    rules = load(packs)
    assert list(rules) == ["plain", "spike"]
    spike = rules["spike"]
    assert (spike.params, spike.for_steps, spike.severity) == ({"factor": 3.0, "window": 10}, 8, Severity.CRITICAL)
    assert isinstance(spike.params["window"], int)
    assert spike.where == f"{packs}/a.yaml:3"
    assert (rules["plain"].min_observations, rules["plain"].severity) == (3, Severity.WARNING)


def test_an_overlay_changes_only_the_keys_it_gives(packs: Path) -> None:
    """Params are merged key by key; the rest stays."""
    overlay = "rules:\n  - name: spike\n    params: {strict: true}\n    for_steps: 0\n"
    spike = load(packs, overlay)["spike"]
    assert spike.params == {"factor": 3.0, "window": 10, "strict": True}
    assert (spike.for_steps, spike.severity, spike.summary) == (0, Severity.CRITICAL, "It spiked.")
    assert spike.where == f"{packs.parent}/mine0.yaml:2"


def test_overlays_disable_add_and_follow_each_other(packs: Path) -> None:
    """The later file wins."""
    first = "rules:\n  - {name: spike, enabled: false}\n  - {name: mine, when: reward_mean < 0.1, severity: info}\n"
    second = "rules:\n  - {name: mine, for_steps: 20}\n"
    rules = load(packs, first, second)
    assert not rules["spike"].enabled
    assert (rules["mine"].when, rules["mine"].for_steps) == ("reward_mean < 0.1", 20)
    assert rules["mine"].severity is Severity.INFO


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ("- name: x\n    detecter: spike", "3:5: unknown key 'detecter' (did you mean detector?)"),
        ("- detector: spike", "2:5: missing key 'name'"),
        (
            "- name: X y\n    detector: spike",
            "2:11: name: must consist of words of lowercase letters and digits, joined by hyphens (kl-too-high)",
        ),
        ("- name: x\n    detector: spik", "3:15: unknown detector 'spik' (did you mean spike?)"),
        (
            "- name: x\n    severity: info",
            "2:11: unknown rule 'x' (a new rule needs `detector` or `when`)",
        ),
        ("- name: spik\n    severity: info", "2:11: unknown rule 'spik' (did you mean spike?)"),
        ("- name: spike\n    when: step > 1", "2:11: spike needs either `detector` or `when`, not both"),
        ("- name: spike\n    severity: fatal", "3:15: severity: must be 'info', 'warning' or 'critical'"),
        ("- name: " + "x" * 65, "2:11: name: must have at most 64 characters"),
        ("- name: spike\n    for_steps: 5.5", "3:16: for_steps: must be a whole number, not a fraction"),
        ("- name: spike\n    match: {labels: {team: a, room: ''}}", "3:21: match.labels: must not be empty"),
        ("- name: spike\n    hints: {trl: a, verl: [b]}", "3:12: hints: must be a text, not a list"),
        ("- name: spike\n    for_steps: -1", "3:16: for_steps: must be a whole number >= 0"),
        ("- name: spike\n    min_observations: 0", "3:23: min_observations: must be a whole number >= 1"),
        ("- name: spike\n    params: {factr: 2}", "3:14: unknown parameter 'factr' (did you mean factor?)"),
        ("- name: plain\n    params: {x: 2}", "3:14: unknown parameter 'x' (known parameters: none)"),
        ("- name: spike\n    params:\n      factor: 0.5", "4:15: factor must be at least 1, not 0.5"),
        ("- name: spike\n    params:\n      factor: 101", "4:15: factor must be at most 100, not 101"),
        ("- name: spike\n    params: {window: 2.5}", "3:22: window must be a whole number, not 2.5"),
        ("- name: spike\n    params: {window: true}", "3:22: window must be a whole number, not True"),
        ("- name: spike\n    params: {factor: .nan}", "3:22: factor must be a number, not nan"),
        ("- name: spike\n    params: {strict: 1}", "3:22: strict must be true or false, not 1"),
        ("- name: spike\n    params: {metric: 1}", "3:22: metric must be text, not 1"),
        ("- name: spike\n    labels: {a: c}", "3:5: unknown key 'labels' (labels of alerts are those of their run"),
        ("- name: x\n    when: stp > 1", "3:11: unknown name 'stp' (did you mean step?)"),
        ("- name: x\n    when: 'step > 1 and stp > 1'", "3:25: unknown name 'stp' (did you mean step?)"),
        ("- name: x\n    when: >\n      stp > 1", "4:7: unknown name 'stp' (did you mean step?)"),
        ("- name: x\n    when: step > 1\n    params: {a: 1}", "4:13: only detectors have params"),
        ("- name: spike\n  - name: spike", "3:11: spike is defined twice (first in line 2)"),
        ("- name: spike\n    name: spike", "3:5: duplicate key 'name' (first in line 2)"),
        ("- spike", "2:5: a rule must be a mapping that starts with `- name:`"),
        ("- &a {name: spike}\n  - *a", "3:5: aliases (*name) are not allowed"),
        ("- name: !!python/name:os.getcwd x", "2:11: is not valid YAML: could not determine a constructor"),
        ("- name: [", "3:1: is not valid YAML: "),
        ("- name: " + "[" * 40 + "]" * 40, "2:38: more than 30 levels are not allowed"),
    ],
)
def test_mistakes_name_file_line_column_and_fix(packs: Path, entry: str, message: str) -> None:
    """Each kind of mistake in a user's file is one line that points at it."""
    reported = refusal(packs, f"rules:\n  {entry}\n")
    assert reported.startswith(f"mine0.yaml:{message}")
    assert "\n" not in reported


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[]", "mine0.yaml:1:1: a rule file must contain a list under the key `rules:`"),
        ("rules: {}", "mine0.yaml:1:1: a rule file must contain a list under the key `rules:`"),
        ("rules: []\ntests: []", "mine0.yaml:2:1: unknown key 'tests' (tests belong in a separate file)"),
        ("rules: []\nrulez: []", "mine0.yaml:2:1: unknown key 'rulez' (did you mean rules?)"),
        ("a: " + "x" * 1_000_000, "mine0.yaml: is larger than 1000000 bytes"),
    ],
)
def test_files_that_are_no_rule_files(packs: Path, text: str, message: str) -> None:
    """The whole file is refused with its name."""
    assert refusal(packs, text) == message


def test_unreadable_files(tmp_path: Path, packs: Path) -> None:
    """Missing files, folders and binary files are named."""
    binary = tmp_path / "binary.yaml"
    binary.write_bytes(b"\xff\xfe\x00")
    for path, problem in ((tmp_path / "no.yaml", "No such file"), (tmp_path, "Is a directory"), (binary, "not UTF-8")):
        with pytest.raises(RuleError, match=problem) as refused:
            load_rules([path], detectors=DETECTORS, packs=packs)
        assert str(refused.value).startswith(f"{path}: ")


def test_a_name_in_two_packs_is_refused(packs: Path) -> None:
    """Shipped packs never override each other."""
    (packs / "z.yaml").write_text("rules:\n  - {name: plain, detector: plain}\n")
    with pytest.raises(RuleError, match=r"z\.yaml:2:12: plain is already defined in .*a\.yaml:9$"):
        load(packs)


def test_the_shipped_packs_load() -> None:
    """Every shipped file is a pack, and the rules carry texts for people."""
    assert {file.stem for file in packs_folder().glob("*.yaml")} == {
        "policy",
        "reward",
        "rollouts",
        "run",
        "stability",
        "watcher",
    }
    for rule in load_rules():
        assert rule.summary.endswith("."), rule.where
        assert rule.hint, rule.where
        assert len(rule.summary) <= 160, rule.where
