"""`lint`: every mistake of a file at its place; what frameworks can give."""

from __future__ import annotations

from pathlib import Path

import pytest

from grpo_watch.frameworks.framework_tables import frameworks, produced_by
from grpo_watch.rules.packs import lint, packs_folder


def linted(folder: Path, text: str) -> list[str]:
    file = folder / "mine.yaml"
    file.write_text(text)
    return [str(problem).removeprefix(f"{file}:") for problem in lint([file], sorted(frameworks()))]


def test_all_mistakes_are_reported_not_only_the_first(tmp_path: Path) -> None:
    """A misspelt metric, a bad parameter, a severity, a duplicate, a rule that is not there; good ones between."""
    problems = linted(
        tmp_path,
        """rules:
  - name: a
    when: reward_men < 0.1
  - name: kl-explosion
    params: {levl: 3}
  - name: b
    when: loss > 1
    severity: loud
  - name: c
    when: loss > 1
  - name: c
    when: loss > 2
  - name: kl-explosio
    enabled: false
  - just text
""",
    )
    assert problems == [
        "3:11: unknown name 'reward_men' (did you mean reward_mean?)",
        "5:14: unknown parameter 'levl' (did you mean level?)",
        "8:15: severity: must be 'info', 'warning' or 'critical'",
        "11:11: c is defined twice (first in line 9)",
        "13:11: unknown rule 'kl-explosio' (did you mean kl-explosion?)",
        "15:5: a rule must be a mapping that starts with `- name:`",
    ]


def test_a_file_that_is_no_rule_file_is_one_problem(tmp_path: Path) -> None:
    assert linted(tmp_path, "rule: []\n") == ["1:1: a rule file must contain a list under the key `rules:`"]


def test_a_match_that_no_framework_fits(tmp_path: Path) -> None:
    text = """rules:
  - {name: kl-explosion, severity: info, match: {framework: ms-swfit}}
  - {name: kl-explosion, severity: info, match: {framework: "trl*"}}
"""
    assert linted(tmp_path, text) == ["2:61: no framework matches 'ms-swfit' (did you mean ms-swift?)"]


@pytest.mark.parametrize("framework", ["trl", "verl", "nemo-rl", "tinker-cookbook"])
def test_held_out_scores_are_read_of_every_framework_that_evaluates(framework: str) -> None:
    """Their keys are a dataset's own: no data file lists them."""
    assert "eval_score" in (produced_by(framework) or ())


def test_failed_rewards_are_read_where_a_console_names_them() -> None:
    given = {framework: "reward_failures" in (produced_by(framework) or ()) for framework in ("verl", "areal", "trl")}
    assert given == {"verl": True, "areal": True, "trl": False}


UNLOGGED = {"tinker-cookbook": {"loss", "grad_norm"}, "torchforge": {"grad_norm"}, "trl-ppo": {"grad_norm"}}


@pytest.mark.parametrize("framework", sorted(frameworks()))
def test_every_framework_gives_the_common_metrics(framework: str) -> None:
    """What any GRPO trainer logs, less what a few keep to themselves; an unknown framework gives None."""
    common = {"loss", "reward_mean", "learning_rate", "grad_norm"} - UNLOGGED.get(framework, set())
    assert common <= (produced_by(framework) or set())
    assert produced_by("nope") is None


def test_the_shipped_packs_have_no_problem() -> None:
    assert lint(sorted(packs_folder().glob("*.yaml"))) == []


def test_a_hint_for_a_framework_that_does_not_exist(tmp_path: Path) -> None:
    text = """rules:
  - {name: kl-explosion, hints: {verl: lower it, ms-swfit: lower it}}
"""
    assert linted(tmp_path, text) == ["2:60: unknown framework 'ms-swfit' (did you mean ms-swift?)"]
