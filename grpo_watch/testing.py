"""For tests that train: asserts that a run is healthy."""

from __future__ import annotations

from typing import Any

from grpo_watch.api import PathLike, check
from grpo_watch.engine.snapshot import UNJUDGED, RunVerdict
from grpo_watch.report.blindness import headline
from grpo_watch.report.view import views


def assert_healthy(path: PathLike, *, allow_warnings: bool = False, **settings: Any) -> None:
    """Check a run as ``grpo_watch.check`` does.

    Raises:
        AssertionError: it is critical, has a warning that is not allowed, or could not be judged.
        UsageError: there is no run, or several.
    """
    __tracebackhide__ = True
    report = check(path, **settings)
    verdict = report.verdict
    if verdict is RunVerdict.HEALTHY or (allow_warnings and verdict is RunVerdict.WARNING):
        return
    found = [
        f"{each.finding.severity.value} {each.finding.rule}: {each.finding.summary}" for each in views(report.snapshot)
    ]
    why = [report.snapshot.judgement.reason] if verdict in UNJUDGED else found
    raise AssertionError("\n  ".join([f"{path}: {headline(report.snapshot)}", *filter(None, why)]))
