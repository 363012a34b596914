"""Every example of every runbook is run through the engine under the shipped rule."""

from __future__ import annotations

import pytest

from grpo_watch.catalogue import catalogue
from grpo_watch.rules.example_blocks import Example
from grpo_watch.rules.packs import load_rules
from grpo_watch.rules.rule_tests import failure
from grpo_watch.rules.runbook import page_of, runbook_of
from tests.support.runbooks import examples_of

DETECTORS = catalogue()
RULES = {rule.name: rule for rule in load_rules(detectors=DETECTORS)}


def _examples() -> list[object]:
    """A missing runbook is refused by test_catalogue.py, not here."""
    with_runbook = {name: detector for name, detector in DETECTORS.items() if page_of(detector).exists()}
    return [
        pytest.param(name, example, id=f"{name}:{example.place.line}")
        for name, detector in with_runbook.items()
        for example in examples_of(runbook_of(detector))
    ]


@pytest.mark.parametrize(("name", "example"), _examples())
def test_example(name: str, example: Example) -> None:
    """Fires, resolves or stays quiet as the runbook says."""
    assert failure(example, RULES[name], DETECTORS) is None
