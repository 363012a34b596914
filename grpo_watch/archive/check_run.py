"""Replays one run, for a report."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from msgspec import Struct, field

from grpo_watch.catalogue import catalogue
from grpo_watch.config.schema import Settings
from grpo_watch.engine.records import Scalar, Tick
from grpo_watch.engine.rule import Rule
from grpo_watch.pipeline.offline import read_run
from grpo_watch.pipeline.pipeline import Pipeline
from grpo_watch.report.check_document import ChannelReport, RunReport
from grpo_watch.report.view import joined
from grpo_watch.sources.discovery.discover import FoundRun

if TYPE_CHECKING:
    from grpo_watch.report.series import RecordedRun


class CheckSetup(Struct, frozen=True):
    """What a check of several runs has in common; it can be sent to another process.

    ``overrides`` (``--set``) win over the settings file's entry for a run. ``tick`` ends each run. With ``recording``
    the reports carry the rows too, which takes memory.
    """

    rules: tuple[Rule, ...]
    tick: Tick
    overrides: Mapping[str, Scalar] = field(default_factory=dict)
    settings: Settings = field(default_factory=Settings)
    recording: bool = False


def check_run(setup: CheckSetup, found: FoundRun) -> RunReport:
    """Replay a run and report on it."""
    recorded = _recorded() if setup.recording else None
    observe = recorded.observe if recorded is not None else None
    read = read_run(found, setup.rules, catalogue(), setup.tick, setup.settings, setup.overrides, observe=observe)
    channels = tuple(
        ChannelReport(
            name=source.name,
            kind=source.what,
            records=source.stats.records,
            skipped={reason.value: count for reason, count in source.stats.skipped.items()},
            first_bad=source.stats.first_bad,
            problem=source.stats.problem,
        )
        for source in read.sources
    )
    notes = (read.pipeline.assembler.agreement.summary(), *read.unused_columns)
    report = RunReport(joined(read.pipeline.snapshot()), channels, found.problems, tuple(filter(None, notes)))
    return report if recorded is None else replace(report, series=recorded.series, batches=tuple(recorded.batches))


def failed_run(setup: CheckSetup, name: str, message: str) -> RunReport:
    """The report on a run that could not be checked: not evaluable, with the reason as a problem."""
    snapshot = Pipeline(name, setup.rules, catalogue()).snapshot()
    return RunReport(snapshot, problems=(f"could not be checked: {message}",))


def _recorded() -> RecordedRun:
    from grpo_watch.report.series import RecordedRun  # noqa: PLC0415  only charts need it

    return RecordedRun()
