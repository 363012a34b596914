"""What a history of the pipeline is made of: the routes of the receivers, the rules in force, rows, and a run's log."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from pathlib import Path

from hypothesis import strategies as st

from grpo_watch.catalogue import catalogue
from grpo_watch.engine.records import Severity
from grpo_watch.engine.rule import Rule
from grpo_watch.notify.receiver import Route
from grpo_watch.rules.rule_changes import RuleSet, rule_set
from tests.model.contract import RULES, Row
from tests.support.live import SHIPPED

BEGIN = datetime(2026, 11, 18, 22, 45, tzinfo=timezone.utc).timestamp()
"""When the histories begin (Unix seconds)."""
RUNS = ("a", "b")
OWN = "delivery-failing"
NAMES = tuple(each.name for each in RULES)
ROUTES: Mapping[str, Route] = {
    "plain": Route(rules=NAMES),
    "digests": Route(rules=NAMES, digest=True),
    "critical": Route(rules=NAMES, min_severity=Severity.CRITICAL),
    "one run": Route(rules=NAMES, runs=("a",), digest=True),
    "watcher": Route(rules=(OWN,)),
}
SEVERITIES = {"critical": frozenset({"critical"})}
FEW = 6
"""Messages that may wait, in histories where the queue overflows."""
QUIET_ROW: Row = {"reward": 0.2, "kl": 0.01, "completions/mean_length": 50.0, "grad_norm": 1.0}
LOUD_ROW: Row = {"reward": 0.9, "kl": 0.9, "completions/mean_length": 150.0, "grad_norm": 9.0}


def rules(hint: str) -> RuleSet:
    """The contract's rules as ours, and the shipped one about receivers."""
    own = next(each for each in SHIPPED.rules if each.name == OWN)
    columns = {"reward": "reward_mean", "kl": "kl_reference", "completions/mean_length": "completion_length_mean"}
    made = [
        Rule(
            each.name,
            when=f"{columns.get(each.column, each.column)} > {each.limit}",
            for_steps=each.patience,
            keep_firing_steps=each.patience,
            min_observations=1,
            severity=Severity(each.severity),
            hint=hint,
        )
        for each in RULES
    ]
    return rule_set([own, *made], catalogue())


ROWS = st.fixed_dictionaries(
    {},
    optional={
        column: st.sampled_from([quiet, LOUD_ROW[column], LOUD_ROW[column]]) for column, quiet in QUIET_ROW.items()
    },
)
"""Each column is loud, quiet or missing."""


class Log:
    """A run's log; the rows whose lines are written to their end are ``rows``."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True)
        self.path = folder / "logging.jsonl"
        self.rows: list[Row] = []
        self._rest = ""

    def write(self, more: Sequence[Row], now: float, cut: float = 1.0) -> None:
        """Append rows; of the last one only a share is written now, and the rest by the next call."""
        text = self._rest
        for row in more:
            self.rows.append(row)
            place = {"global_step/max_steps": f"{len(self.rows)}/1000000"}
            text += json.dumps({"loss": 0.1, "learning_rate": 1e-6, **row, **place}) + "\n"
        end = len(text) if cut == 1.0 or not more else len(text) - 1 - int((1.0 - cut) * 40)
        self._rest = text[end:]
        with self.path.open("a") as log:
            log.write(text[:end])
        for path in (self.path, self.path.parent):
            os.utime(path, (now, now))
