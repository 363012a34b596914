"""The agent stops using its tools: turns or tool calls fall to the least there can be, and the reward gains nothing."""

from __future__ import annotations

from collections.abc import Iterable

from grpo_watch.engine.detector import QUIET, SILENT, Detector, NotApplicable, NotYet, RunView, breach, no_data, param
from grpo_watch.engine.evidence import number
from grpo_watch.engine.records import MetricRow, Reading
from grpo_watch.engine.traits import LikelyCause
from grpo_watch.engine.window import Window

CALLS, TURNS = "tool_calls_mean", "turns_mean"
CHEAPER = LikelyCause("Guessing pays as well as calling a tool: use tasks that need it, or a small reward for a call.")
UNPARSED = LikelyCause("Calls are not recognised: compare the template's call format with the parser's.")


class TurnsCollapse(Detector):
    """Compares the newest rows with the first ones, above the least possible number."""

    explained_by = ("tool-failures",)
    likely_causes = (CHEAPER, UNPARSED)
    dashboards = ("grpo-sampling-weights",)

    needs = ((CALLS,), (TURNS,))
    rows: int = param(10, "first and newest rows that are compared", minimum=3)
    used: float = param(0.5, "turns or calls above the least, at first, from which tools count as used", 0)
    left: float = param(0.1, "share of them that is left at most", 0, 1)

    def setup(self) -> None:
        """Empty windows."""
        self.newest = {metric: Window(self.rows) for metric in (CALLS, TURNS)}
        self.first: dict[str, float] = {}

    def observe(self, record: MetricRow, run: RunView) -> Iterable[Reading]:
        """Judge one row that says how many turns or calls a completion has; calls where both are logged."""
        metric = CALLS if run.seen(CALLS) else TURNS
        count = number(record, metric)
        if count is None:
            return SILENT
        window = self.newest[metric]
        window.push(count)
        if not window.full:
            return no_data(NotYet("too few rows yet"))
        now = window.median() or 0.0
        first = self.first.setdefault(metric, now)
        least = 0.0 if metric == CALLS else 2.0 if run.framework == "verl" else 1.0  # verl counts the user's message
        if first < least + self.used:
            return no_data(NotApplicable("the model used no tools at the start"))
        if now > least + self.left * (first - least) or run.trend.reward_does_well():
            return QUIET
        what = "tool calls" if metric == CALLS else "turns"
        message = f"{what} per completion fell from {first:.3g} to {now:.3g}, and the reward gains nothing"
        evidence = {metric: round(now, 4), "at_first": round(first, 4)}
        return breach(value=now, threshold=least, message=message, evidence=evidence)
