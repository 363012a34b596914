"""A group of one completion has nothing to compare it with: every advantage is 0 or NaN."""

from __future__ import annotations

from collections.abc import Iterator

from grpo_watch.engine.records import Severity
from grpo_watch.frameworks.launch_batch import batch_of, refusals
from grpo_watch.frameworks.launches import LaunchSettings
from grpo_watch.preflight.findings import LaunchProblem

NAME = "group-size-one"


def judge(settings: LaunchSettings) -> Iterator[LaunchProblem]:
    """One problem if the group size is known to be 1 or less; a teacher's signal (ms-swift) needs no group."""
    name = settings.name_of("group")
    group = settings.number(name) if name else None
    unseen = settings.given(name) is None and settings.unreadable(
        "config_name"
    )  # set by the file of verl's --config-name
    if group is None or group > 1 or unseen or _taught(settings):
        return
    batch = batch_of(settings)
    first = next(iter(refusals(batch)), None) if batch else None
    when = f"refused {first.stage.value}" if first else "the framework accepts it and learns nothing"
    yield LaunchProblem(
        NAME,
        Severity.CRITICAL,
        f"{settings.own_name(name)} is {group:g}: an advantage compares the completions of one prompt; {when}",
        f"set {settings.own_name(name)} to 4 or more (8 is usual)",
        settings.where(name),
        first.text if first else "",
    )


def _taught(settings: LaunchSettings) -> bool:
    return any(settings.given(name) is not None for name in settings.facts.needs_no_group)
