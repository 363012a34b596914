"""Replays one run, for a report or for rules on trial."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct, field

from grpo_watch.catalogue import catalogue
from grpo_watch.children.pool import in_processes
from grpo_watch.config.schema import Settings
from grpo_watch.engine.records import Scalar, Tick
from grpo_watch.engine.rule import Rule
from grpo_watch.pipeline.offline import ReplayedRule, backtest, read_run
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


def backtest_all(
    runs: Sequence[FoundRun], rules: Sequence[Rule], now: float, processes: int = 1
) -> tuple[list[ReplayedRule], list[str]]:
    """Each rule over each run, run by run, and one line for each run that could not be replayed."""
    if processes == 1 or len(runs) == 1:
        return list(backtest(runs, rules, catalogue(), now)), []
    pieces = [(run, tuple(rules), now) for run in runs]
    answers = {answer.place: answer for answer in in_processes(_work, pieces, min(processes, len(runs)))}
    ordered = [answers[place] for place in range(len(runs))]
    replayed = [
        each for answer in ordered if not answer.error for each in msgspec.msgpack.decode(answer.result, type=_RESULT)
    ]
    return replayed, [f"{run.name}: {answer.error}" for run, answer in zip(runs, ordered, strict=True) if answer.error]


_RESULT = list[ReplayedRule]


def _work(piece: tuple[FoundRun, tuple[Rule, ...], float]) -> bytes:
    run, rules, now = piece
    return msgspec.msgpack.encode(list(backtest([run], rules, catalogue(), now)))
