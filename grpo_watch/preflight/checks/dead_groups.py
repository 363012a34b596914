"""At the expected pass rate most groups will have no spread: all answers right, or all wrong."""

from __future__ import annotations

from collections.abc import Iterator

from grpo_watch.engine.records import Severity
from grpo_watch.frameworks.launches import LaunchSettings
from grpo_watch.preflight.findings import LaunchProblem
from grpo_watch.preflight.predict import dead_share, group_for

NAME = "dead-groups"
MANY = 0.5
"""Share of dead groups from which the check reports: half of the generated completions are then wasted."""


def judge(settings: LaunchSettings) -> Iterator[LaunchProblem]:
    """One problem if ``pass_rate`` predicts more dead groups than ``dead_share`` allows, or half of them."""
    rate, name = settings.number("pass_rate"), settings.name_of("group")
    group = settings.whole(name) if name else None
    if rate is None or group is None or group <= 1 or not 0 <= rate <= 1:
        return
    share, wanted = dead_share(rate, group), settings.number("dead_share")
    most = MANY if wanted is None else wanted
    if share <= most and share != MANY:
        return
    needed = group_for(rate, most)
    wider = f"{settings.own_name(name)} {needed} brings it to {most:.0%} or less" if needed else "no larger group helps"
    yield LaunchProblem(
        NAME,
        Severity.WARNING,
        f"at a pass rate of {rate:g} at least {share:.0%} of the groups of {group} have no spread and teach nothing",
        f"{wider}; or choose prompts that are neither always nor never solved",
        settings.where(name, "pass_rate"),
    )
