"""Agents whose tool calls mostly fail, or that stop calling tools, without the reward improving."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from statistics import median

from grpo_watch.detectors.shared.generations import completions_per_row
from grpo_watch.engine.detector import QUIET, SILENT, Detector, NotApplicable, NotYet, RunView, breach, no_data, param
from grpo_watch.engine.evidence import number
from grpo_watch.engine.records import MetricRow, Reading
from grpo_watch.engine.traits import LikelyCause
from grpo_watch.engine.window import Window

DOWN = LikelyCause("Sandbox, search service or environment server is down or overloaded: look into its own log.")
NAMES = LikelyCause("The model calls tools that do not exist or with wrong arguments: compare with the tools' schemas.")


UNKNOWN = "how many tool calls a step has is not known: log tool calls or turns, set generation_batch_size"


class ToolFailures(Detector):
    """Judges the share of failed tool calls; a falling share is a policy that learns to call its tools: no breach.

    The shares are proposals: no healthy recorded run logs failures; synthetic ones draw up to 0.85 at first, falling.
    prime-rl counted rollouts with an error before March 2026: a run that ever logs more than 1 logs no share.
    """

    likely_causes = (DOWN, NAMES)
    dashboards = ("grpo-sampling-weights",)

    needs = (("tool_failure_ratio",), ("tool_errors",))
    share: float = param(0.7, "median share of failed calls that is a breach", 0, 1)
    rows: int = param(10, "rows in the median; twice as many before them show whether failures fade", minimum=3)
    nearly_all: float = param(0.9, "median that is a breach from the start", 0, 1)
    rise: float = param(0.2, "below that: rise above the lowest median of the run that is a breach", 0, 1)
    calls: float = param(0.1, "tool calls per completion (median of the rows, where logged) from which tools matter", 0)
    fading: float = param(0.95, "share of the median before them below which failures count as fading", 0, 1)

    def setup(self) -> None:
        """Start with no rows."""
        self.failed: deque[float] = deque(maxlen=3 * self.rows)
        self.called = Window(self.rows)
        self.counts = False
        self.lowest = 1.0

    def observe(self, record: MetricRow, run: RunView) -> Iterable[Reading]:
        """Judge one row that logs how many tool calls failed."""
        failed = number(record, "tool_failure_ratio")
        failed = _counted(record, run) if failed is None else failed
        if failed is None:
            return no_data(UNKNOWN) if "tool_errors" in record.values and run.evaluated != record.step else SILENT
        self.counts = self.counts or failed > 1.0
        if self.counts:
            return no_data(NotApplicable("failures are logged as numbers, not as shares"))
        self.failed.append(failed)
        if (calls := number(record, "tool_calls_mean")) is not None:
            self.called.push(calls)
        middle, before = median(list(self.failed)[-self.rows :]), median(list(self.failed)[: -self.rows] or [failed])
        if len(self.failed) >= self.rows:
            self.lowest = min(self.lowest, middle)
        if len(self.failed) < 3 * self.rows:
            return no_data(NotYet("too few rows yet"))
        called = self.called.median()
        broken = middle >= min(self.nearly_all, self.lowest + self.rise) and (called is None or called >= self.calls)
        if middle < max(self.share, self.fading * before) or not broken or run.trend.reward_does_well():
            return QUIET
        what = "rollouts end in an error" if run.framework == "prime-rl" else "tool calls fail"
        message = f"{middle:.0%} of the {what} (median of {self.rows} rows), the reward gains nothing"
        evidence = {"tool_failure_ratio": round(middle, 4), "tool_calls_mean": run.newest("tool_calls_mean")}
        evidence |= {"tool_errors": run.newest("tool_errors")} if run.seen("tool_errors") else {}
        return breach(value=middle, threshold=self.share, message=message, evidence=evidence)


def _counted(row: MetricRow, run: RunView) -> float | None:
    """The share of failed calls by a console; once some failed, a row with a reward that prints none counts as 0."""
    if "reward_mean" not in row.values or not run.seen("tool_errors") or run.evaluated == row.step:
        return None
    turns, completions = number(row, "turns_mean"), completions_per_row(run)
    rounds, at_once = None if turns is None else (turns - 2.0) / 2.0, run.number("parallel_tool_calls") or 1.0
    calls = number(row, "tool_calls_mean") or (None if rounds is None else rounds * at_once)
    if not completions or not calls or calls <= 0.0:
        return None
    return min(1.0, (number(row, "tool_errors") or 0.0) / (completions * calls))


CALLS, TURNS = "tool_calls_mean", "turns_mean"
CHEAPER = LikelyCause("Guessing pays as well as calling a tool: use tasks that need it, or a small reward for a call.")
UNPARSED = LikelyCause("Calls are not recognised: compare the template's call format with the parser's.")


class TurnsCollapse(Detector):
    """Compares the newest rows with the first ones, counted above the least possible number of turns.

    The shares are proposals: in the healthy recorded runs that log turns their number never fell.
    """

    explained_by = ("tool-failures",)
    likely_causes = (CHEAPER, UNPARSED)
    dashboards = ("grpo-sampling-weights",)

    needs = ((CALLS,), (TURNS,))
    rows: int = param(10, "first and newest rows that are compared", minimum=3)
    used: float = param(0.5, "turns or calls above the least, at first, from which tools count as used", 0)
    left: float = param(0.1, "share of them that is left at most", 0, 1)

    def setup(self) -> None:
        """Start with empty windows."""
        self.newest = {metric: Window(self.rows) for metric in (CALLS, TURNS)}

    def observe(self, record: MetricRow, run: RunView) -> Iterable[Reading]:
        """Judge one row that logs how many turns or calls a completion has; calls if both are logged."""
        metric = CALLS if run.seen(CALLS) else TURNS
        count = number(record, metric)
        if count is None:
            return SILENT
        window = self.newest[metric]
        window.push(count)
        if window.first is None:
            return no_data(NotYet("too few rows yet"))
        first, now = window.first, window.median() or 0.0
        least = 0.0 if metric == CALLS else 2.0 if run.framework == "verl" else 1.0  # verl counts the user's message
        if first < least + self.used:
            return no_data(NotApplicable("the model used no tools at the start"))
        if now > least + self.left * (first - least) or run.trend.reward_does_well():
            return QUIET
        what = "tool calls" if metric == CALLS else "turns"
        message = f"{what} per completion fell from {first:.3g} to {now:.3g}, and the reward gains nothing"
        evidence = {metric: round(now, 4), "at_first": round(first, 4)}
        return breach(value=now, threshold=least, message=message, evidence=evidence)
