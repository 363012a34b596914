"""The training reward rises while the held-out score falls or stands still: the reward is gamed, or data memorised."""

from __future__ import annotations

from collections.abc import Iterable
from math import sqrt

from grpo_watch.engine.detector import SILENT, Detector, NotYet, RunView, no_data, param
from grpo_watch.engine.metric_names import split_label
from grpo_watch.engine.metric_trend import NoisyTrend
from grpo_watch.engine.records import MetricRow, Reading, Scalar, Verdict
from grpo_watch.engine.traits import LikelyCause
from grpo_watch.engine.window import plain_sum

TOTAL = frozenset({"reward", "rewards", "reward/mean"})
"""Scores on the scale of the training reward, of which a rise can be expected."""
GAMED = LikelyCause("An easy part of the reward (format, length) is gamed: read held-out answers, then training ones.")
MEMORISED = LikelyCause("The training prompts are known by now: more of them, fewer epochs.")
OTHER_SETTINGS = LikelyCause("Evaluation samples otherwise (temperature, length limit, template) than training.")


class Evaluations:
    """The scores of one evaluation; ``change`` is between the mean of the newest and of the first ``few``."""

    def __init__(self, few: int) -> None:
        self.few, self.noise = few, NoisyTrend()
        self.first: list[float] = []
        self.newest: list[float] = []

    def push(self, score: float) -> None:
        """Take a score."""
        self.noise.push(score)
        if len(self.first) < self.few:
            self.first.append(score)
        self.newest = [*self.newest, score][-self.few :]

    @property
    def change(self) -> tuple[float, float]:
        """The change and its standard error."""
        change = (plain_sum(self.newest) - plain_sum(self.first)) / self.few
        return change, self.noise.noise * sqrt(2.0 / self.few)


class RewardEvalDivergence(Detector):
    """An audit, no early warning: it needs ``evaluations`` of them, and a change that noise does not explain."""

    explained_by = ("reward-components-diverge",)
    likely_causes = (GAMED, MEMORISED, OTHER_SETTINGS)

    needs = (("eval_score", "reward_mean"),)
    evaluations: int = param(8, "evaluations from which it judges; half of them are the first and the newest", 4)
    errors: float = param(4.0, "standard errors by which the held-out score must have fallen", 1)
    share: float = param(0.2, "share of the training reward's gain that a held-out reward at least has", 0, 1)

    def setup(self) -> None:
        """No evaluation yet."""
        self.scores: dict[str, Evaluations] = {}

    def observe(self, record: MetricRow, run: RunView) -> Iterable[Reading]:
        """Judge a row that carries the score of an evaluation, each score by itself."""
        labels = {name: split_label(name)[1] for name in record.values if name.startswith("eval_score")}
        found = {label or "": record.values[name] for name, label in labels.items()}
        readings: list[Reading] = []
        for name, value in found.items():
            if value is not None:
                scores = self.scores.setdefault(name, Evaluations(self.evaluations // 2))
                scores.push(value)
                if scores.noise.rows + 1 >= self.evaluations:
                    readings.append(self._judge(name, scores, run))
        return readings or (no_data(NotYet("too few evaluations yet")) if found else SILENT)

    def _judge(self, name: str, scores: Evaluations, run: RunView) -> Reading:
        reward, (change, error) = run.trend.reward, scores.change
        gain = (reward.mean or 0.0) - (reward.start or 0.0)
        fell = change < -self.errors * max(error, 1e-9)
        flat = name in TOTAL and change + self.errors * error < self.share * gain
        if not reward.gained() or not (fell or flat):
            return Reading(Verdict.OK, name)
        how = f"fell by {-change:.3g}" if fell else f"changed by {change:.3g} only"
        message = f"the training reward rose by {gain:.3g}, while the held-out {name} {how}"
        evidence: dict[str, Scalar] = {"evaluation": name, "change": round(change, 4), "error": round(error, 4)}
        evidence["reward_gain"] = round(gain, 4)
        return Reading(Verdict.BREACH, name, value=change, threshold=0.0, message=message, evidence=evidence)
