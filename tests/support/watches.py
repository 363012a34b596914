"""Daemons made by hand for the status page: a thousand runs, the worst texts, a very long run."""

from __future__ import annotations

import math
from array import array
from collections.abc import Mapping
from dataclasses import replace

from grpo_watch.daemon.run_detail import BatchView, ListedGroup, RunDetail, RunDetailRecorder
from grpo_watch.engine.records import CheckpointDigest, CompletionSummary, GroupSummary, MetricRow, Stream, TensorDigest
from grpo_watch.engine.snapshot import RunSnapshot, RunVerdict
from grpo_watch.metrics.daemon_snapshot import ChannelStatus, DaemonSnapshot, RunOverview
from grpo_watch.report.charts import Sparkline, sparks
from grpo_watch.rules.rule_changes import RuleSet
from tests.support.live import SHIPPED
from tests.support.reports import EVIL, a_finding, a_hostile_report, a_report

NAMES = (
    "reward_mean",
    "reward_function_mean[a]",
    "reward_function_mean[b]",
    "reward_group_std",
    "reward_zero_std_ratio",
    "kl_reference",
    "entropy",
    "completion_length_mean",
    "completion_length_min",
    "completion_length_max",
    "completion_truncated_ratio",
    "completion_duplicate_ratio",
    "grad_norm",
    "learning_rate",
    "logprob_gap_rollout",
)


class Shown:
    """A daemon that shows these runs, each with the same run detail."""

    def __init__(self, *runs: RunOverview, detail: RunDetail | None = None, problems: tuple[str, ...] = ()) -> None:
        self.now, self.near = DaemonSnapshot(runs=runs, problems=problems), detail or RunDetail()
        self._sparks = sparks(self.near.series)

    def snapshot(self) -> DaemonSnapshot:
        return self.now

    def detail(self, _run: str) -> RunDetail:
        return self.near

    def sparks(self, _run: str) -> Mapping[str, Sparkline]:
        return self._sparks

    def rules(self) -> RuleSet:
        return SHIPPED

    def late(self) -> float | None:
        return None

    def ready(self) -> bool:
        return True


def a_run_detail(steps: int, names: tuple[str, ...] = NAMES, spike: int | None = None) -> RunDetail:
    """Noisy lines of so many steps, the gradient norm with a spike; a batch with a stride, a frozen checkpoint."""
    detail_recorder = RunDetailRecorder()
    for step in range(1, steps + 1):
        values = {name: 0.512345 + math.sin(step * (place + 1)) / 9 for place, name in enumerate(names)}
        if step == spike:
            values["grad_norm"] = 77.0
        detail_recorder.observe(MetricRow("r", Stream.TRAIN, 1, step, values, time=1.7e9 + 30 * step))
    group = GroupSummary("p", 6, (0, 1, 2, 0, 1, 2), 3, (30,) * 6)
    detail_recorder.observe(CompletionSummary("c", steps, (group,) * 8))
    tensors = {f"model.layers.{n}.self_attn.q_proj.weight": TensorDigest("F32", (2,), "a") for n in range(28)}
    for step in (1, steps):
        detail_recorder.observe(CheckpointDigest("c", step, "x", complete=True, tensors=tensors))
    return detail_recorder.detail()


def a_picture(snapshot: RunSnapshot, slug: str = "my-run", *, active: bool = True) -> RunOverview:
    """A run that is read from a console."""
    return RunOverview(snapshot, slug, active=active, channels=(ChannelStatus("console", True, 990.0),))


def a_thousand_runs() -> Shown:
    """Every hundredth is critical, every tenth of the others warns."""
    runs = []
    for number in range(1_000):
        name = f"run-{number:04}"
        if number % 100 == 0:
            snapshot = a_report(a_finding(), run=name).snapshot
        elif number % 10 == 0:
            snapshot = a_report(a_finding("entropy-collapse"), run=name, verdict="warning").snapshot
        else:
            snapshot = replace(a_report(run=name, verdict="healthy").snapshot, verdict=RunVerdict.HEALTHY)
        runs.append(a_picture(snapshot, name, active=number % 2 == 0))
    return Shown(*runs, detail=a_run_detail(300))


def a_hostile_watch() -> Shown:
    """Every text that may come from a run or a rule file holds markup, quotes and control characters."""
    snapshot = a_hostile_report().snapshot
    channel = ChannelStatus(EVIL, up=False, read_at=1.0, problem=EVIL)
    run = RunOverview(snapshot, "evil", active=True, labels={EVIL: EVIL}, channels=(channel,))
    names = (f"reward_function_mean[{EVIL}]", f"reward_function_mean[b{EVIL}]", "reward_mean")
    evil = ListedGroup(array("I", (9, 9)).tobytes(), {EVIL: array("f", (0.5, math.inf)).tobytes()}, (EVIL, EVIL, EVIL))
    batch = BatchView(20, 1, 2, 1, (bytes([0, 0]),), listed=(evil,))
    return Shown(run, detail=replace(a_run_detail(20, names), batches=(batch,)), problems=(EVIL,))
