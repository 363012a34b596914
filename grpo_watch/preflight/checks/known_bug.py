"""A package has a known bug in the version that the launch would use, and its settings meet the bug's condition."""

from __future__ import annotations

from collections.abc import Iterator

from grpo_watch.advisories import judge as by_advisories
from grpo_watch.engine.records import Severity
from grpo_watch.frameworks.launches import LaunchSettings
from grpo_watch.preflight.findings import LaunchProblem
from grpo_watch.preflight.launch_setup import setup_of

NAME = "known-bug"


def judge(settings: LaunchSettings) -> Iterator[LaunchProblem]:
    """One problem per advisory that applies, and one line for all that depend on a version that is not known."""
    unsettled = []
    for match in by_advisories.judge(setup_of(settings.launch)):
        advisory = match.advisory
        if match.applies:
            message = f"{advisory.package} {match.version} {advisory.title} ({advisory.id})"
            yield LaunchProblem(advisory.check, advisory.severity, message, advisory.fix, match.where)
        elif match.version is None and advisory.severity is not Severity.INFO:
            unsettled.append(advisory)
    if unsettled:
        packages = " ".join(sorted({advisory.package for advisory in unsettled}))
        bugs = "a known bug depends" if len(unsettled) == 1 else f"{len(unsettled)} known bugs depend"
        message = f"{bugs} on the version of {packages.replace(' ', ', ')}: {', '.join(each.id for each in unsettled)}"
        yield LaunchProblem(NAME, Severity.INFO, message, f"pip show {packages}, then grpo-watch advisories ID")
