"""The training reward rises while the held-out score falls or stands still: the reward is gamed, or data memorised."""

from __future__ import annotations

from collections.abc import Iterable
from math import sqrt

from grpo_watch.engine.detector import SILENT, Detector, NotYet, RunView, no_data, param
from grpo_watch.engine.evidence import number
from grpo_watch.engine.metric_names import split_label
from grpo_watch.engine.metric_trend import NoisyTrend
from grpo_watch.engine.records import MetricRow, Reading, Scalar, Verdict
from grpo_watch.engine.traits import LikelyCause
from grpo_watch.engine.window import plain_sum

TOTAL = frozenset({"reward", "rewards", "reward/mean"})
"""Scores on the scale of the training reward, of which a rise can be expected."""
REWARDS = frozenset({"reward", "rewards", "score"})
MEANWHILE = 0.25
"""Share of the run's whole gain that must lie between the evaluations: of a steady gain that is half by the eighth, of
one that was nearly over by the first evaluation a few percent, and held-out scores can't show it."""
GAMED = LikelyCause("An easy part of the reward (format, length) is gamed: read held-out answers, then training ones.")
MEMORISED = LikelyCause("The training prompts are known by now: more of them, fewer epochs.")
OTHER_SETTINGS = LikelyCause("Evaluation samples otherwise (temperature, length limit, template) than training.")


def rank(name: str) -> int:
    """How much a score says of the answers: 0 accuracies, 1 total rewards, 2 single reward functions (a penalty)."""
    if name.startswith("rewards/"):
        return 2
    return 0 if REWARDS.isdisjoint(name.split("/")) else 1


class Evaluations:
    """One score's first and newest ``few`` evaluations, each with the training reward at that time (None: no row yet).

    ``noise`` is that of the score.
    """

    def __init__(self, few: int) -> None:
        self.few, self.noise = few, NoisyTrend()
        self.first: list[tuple[float, float | None]] = []
        self.newest: list[tuple[float, float | None]] = []

    def push(self, score: float, reward: float | None) -> None:
        """Take an evaluation."""
        self.noise.push(score)
        if len(self.first) < self.few:
            self.first.append((score, reward))
        self.newest = [*self.newest, (score, reward)][-self.few :]

    @property
    def error(self) -> float:
        """Standard error of the change between the two means of ``few`` scores."""
        return self.noise.noise * sqrt(2.0 / self.few)

    def means(self, start: float) -> tuple[float, float, float, float]:
        """First and newest score, first and newest training reward; ``start`` stands for rewards that are not known."""
        return (*_mean(self.first, start), *_mean(self.newest, start))


def _mean(evaluations: list[tuple[float, float | None]], start: float) -> tuple[float, float]:
    rewards = [start if reward is None else reward for _, reward in evaluations]
    return plain_sum([score for score, _ in evaluations]) / len(evaluations), plain_sum(rewards) / len(rewards)


class RewardEvalDivergence(Detector):
    """An audit, no early warning: it needs ``evaluations`` of them, and a change that noise does not explain.

    Two healthy recorded runs have more than eight (23 and 34). The larger fall of a score was 4.7 standard errors, but
    2.5 % of its first level, half of ``least``; ``share`` is a proposal.
    """

    explained_by = ("reward-components-diverge",)
    likely_causes = (GAMED, MEMORISED, OTHER_SETTINGS)

    needs = (("eval_score", "reward_mean"),)
    evaluations: int = param(8, "evaluations from which it judges; half of them are the first and the newest", 4)
    errors: float = param(4.0, "standard errors by which the held-out score must have fallen", 1)
    least: float = param(0.05, "share of its first level by which the held-out score must have fallen", 0, 1)
    share: float = param(0.2, "share of the training reward's gain that a held-out reward at least has", 0, 1)

    def setup(self) -> None:
        """No evaluation yet."""
        self.scores: dict[str, Evaluations] = {}

    def observe(self, record: MetricRow, run: RunView) -> Iterable[Reading]:
        """Judge a row that carries the score of an evaluation."""
        labels = {name: split_label(name)[1] or "" for name in record.values if name.startswith("eval_score")}
        found = {label: value for name, label in labels.items() if (value := number(record, name)) is not None}
        for name, value in found.items():
            scores = self.scores.setdefault(name, Evaluations(self.evaluations // 2))
            scores.push(value, run.trend.reward.mean)
        enough = [name for name, scores in self.scores.items() if scores.noise.rows + 1 >= self.evaluations]
        if found.keys().isdisjoint(enough):
            return no_data(NotYet("too few evaluations yet")) if found else SILENT
        best = min(map(rank, enough))
        judged = {name: self._judge(name, self.scores[name], run) for name in enough if rank(name) == best}
        breaches = [reading for reading in judged.values() if reading.verdict is Verdict.BREACH]
        most = 2 * len(breaches) > len(judged)
        return [
            judged[name] if most and name in judged else Reading(Verdict.OK, name) for name in enough if name in found
        ]

    def _judge(self, name: str, scores: Evaluations, run: RunView) -> Reading:
        trend, error = run.trend.reward, scores.error
        start = trend.start or 0.0
        first, reward_first, newest, reward = scores.means(start)
        change, gain = newest - first, reward - reward_first
        fell = -change > max(self.errors * max(error, 1e-9), self.least * abs(first))
        flat = name in TOTAL and change + self.errors * error < self.share * gain and reward - newest > gain / 2
        # So many means of rows as evaluations, instead of one.
        least = max(trend.beyond_noise / sqrt(scores.few), MEANWHILE * (trend.highest - start))
        if not trend.gained() or gain < least or not (fell or flat):
            return Reading(Verdict.OK, name)
        how = f"fell by {-change:.3g}" if fell else f"changed by {change:.3g} only"
        message = f"the training reward rose by {gain:.3g}, while the held-out {name} {how}"
        evidence: dict[str, Scalar] = {"evaluation": name, "change": round(change, 4)}
        evidence |= {"standard_error": round(error, 4), "reward_gain": round(gain, 4)}
        return Reading(Verdict.BREACH, name, value=change, threshold=0.0, message=message, evidence=evidence)
