"""An advantage is larger than its group can give: the division by the deviation went wrong."""

from __future__ import annotations

from collections.abc import Iterable

from grpo_watch.detectors.reward.group_arithmetic import bound, by_function, by_group
from grpo_watch.engine.detector import QUIET, SILENT, Detector, NotApplicable, RunView, breach, no_data, param
from grpo_watch.engine.records import CompletionSummary, MetricRow, Reading
from grpo_watch.engine.reward_functions import ADVANTAGE

EXTREMES = ("advantage_max", "advantage_min")


class AdvantageOutOfBounds(Detector):
    """A theorem where the group's own deviation divides; with leave-one-out, a number that no real spread gives."""

    reads = (MetricRow, CompletionSummary)

    needs = (EXTREMES, ("completions",))
    margin: float = param(1.05, "factor on the bound, for rounding", minimum=1)
    leave_one_out: float = param(500.0, "advantage that is a breach with a leave-one-out baseline", minimum=10)

    def observe(self, record: MetricRow | CompletionSummary, run: RunView) -> Iterable[Reading]:
        """Judge the extremes of a row, or those of a dumped batch."""
        if isinstance(record, MetricRow):
            size, values = run.number("num_generations"), [record.values.get(metric) for metric in EXTREMES]
        else:
            sizes = [float(group.size) for group in record.groups]
            size = max([*sizes, run.number("num_generations") or 0.0]) if sizes else None  # dumps may hold a part
            values = [value for group in record.groups for value in group.rewards.get(ADVANTAGE, ())]
        known = [value for value in values if value is not None]
        if not known or size == 1:  # a group of one is not centred: group-size-one
            return SILENT
        scaled = by_group(run.setting("scale_rewards"))
        if not scaled or not size:
            why = "how advantages are scaled is not known (scale_rewards), or the group size (num_generations)"
            return no_data(why if scaled is not False else NotApplicable("no group's deviation divides advantages"))
        worst, alone = max(known, key=abs), bool(run.setting("leave_one_out"))
        limit = self.leave_one_out if alone else self.margin * bound(size)
        if abs(worst) <= limit:
            return QUIET
        if isinstance(record, CompletionSummary) and _gdpo(record, worst, run):
            return no_data(NotApplicable("the dumped advantages add up each function's standardised scores (GDPO)"))
        least = f"above {limit:g}" if alone else f"more than the {bound(size):.3g} that a group of {size:g} can give"
        message = f"an advantage of {worst:.6g} is {least}"
        evidence = {"advantage": worst, "bound": round(limit, 4), "num_generations": size}
        return breach(
            value=abs(worst),
            threshold=limit,
            message=message,
            evidence=evidence,
            headline="An advantage is far too large" if alone else "",
        )


def _gdpo(batch: CompletionSummary, worst: float, run: RunView) -> bool:
    weights = run.functions.weights
    return any(worst in group.rewards.get(ADVANTAGE, ()) and by_function(group, weights) for group in batch.groups)
