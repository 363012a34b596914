"""verl, OpenRLHF, NeMo-RL or ms-swift's Megatron trainer refuses the combination of batch sizes."""

from __future__ import annotations

from collections.abc import Iterator

from grpo_watch.core.records import Severity
from grpo_watch.preflight.defaults import Settings
from grpo_watch.preflight.findings import Problem
from grpo_watch.preflight.own_rules import OWN

NAME = "framework-constraint"


def judge(settings: Settings) -> Iterator[Problem]:
    """A problem for each rule of the framework that the settings break."""
    rules = OWN.get(settings.framework)
    for broken in rules.broken(settings) if rules else ():
        yield Problem(
            NAME,
            Severity.WARNING if broken.unsure else Severity.CRITICAL,
            f"refused {broken.when}: {broken.text}{f' ({broken.unsure})' if broken.unsure else ''}",
            broken.fix,
            settings.where(*broken.settings),
            broken.text,
        )
