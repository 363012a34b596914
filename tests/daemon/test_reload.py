"""Rules are reloaded only when that is wanted, and a mistake in them leaves the old ones in force."""

from __future__ import annotations

import pytest

from grpo_watch.errors import RuleError
from grpo_watch.rules.rule_changes import RulesInForce, rule_set
from tests.support.live import SHIPPED, each_time

OTHERS = rule_set(SHIPPED.rules[1:], SHIPPED.detectors)


def test_nothing_is_loaded_that_was_not_wanted() -> None:
    rules = RulesInForce(each_time(SHIPPED, OTHERS))
    assert not rules.reload()
    assert rules.now == SHIPPED
    rules.want()
    assert rules.reload()
    assert rules.now == OTHERS
    assert not rules.reload()


def test_the_same_rules_change_nothing() -> None:
    rules = RulesInForce(each_time(SHIPPED, SHIPPED))
    rules.want()
    assert not rules.reload()


def test_what_does_not_load_is_reported_until_it_does() -> None:
    rules = RulesInForce(each_time(SHIPPED, RuleError("mine.yaml:3:5: no"), SHIPPED))
    rules.want()
    assert not rules.reload()
    assert (rules.now, rules.problem) == (SHIPPED, "mine.yaml:3:5: no")
    rules.want()
    rules.reload()
    assert rules.problem == ""


def test_the_first_rules_must_load() -> None:
    with pytest.raises(RuleError, match="no"):
        RulesInForce(each_time(RuleError("mine.yaml:3:5: no")))
