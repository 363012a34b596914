"""The reward falls far below the run's best, or rises while the held-out score does not."""

from __future__ import annotations

from collections.abc import Iterable
from math import sqrt

from grpo_watch.detectors.shared.likely_causes import RATES, UNHELD
from grpo_watch.engine.detector import QUIET, SILENT, Detector, NotYet, RunView, breach, no_data, param
from grpo_watch.engine.evidence import number
from grpo_watch.engine.metric_names import split_label
from grpo_watch.engine.metric_trend import LAST, ROWS, NoisyTrend, RewardTrend
from grpo_watch.engine.records import MetricRow, Reading, Scalar, Severity, Stream, Tick, Verdict
from grpo_watch.engine.traits import LikelyCause, WasteKind
from grpo_watch.engine.trend import HALF, TrendSign, named, shown
from grpo_watch.engine.window import plain_sum

AGREEING = frozenset(TrendSign) - {TrendSign.REWARD_FELL, TrendSign.SPREAD_LOST, TrendSign.TEXTS_REPEAT}
OF_POLICY = ("entropy", "completion_length_mean", "completion_truncated_ratio", "kl_reference")
"""A policy is called unchanged only if one of these is logged."""

STUCK = 20
"""Rows with an identical reward, if also twice as many as ever before, after which half of the best counts as lost."""
NEVER_ROSE = (
    "The reward never rose above where it began, so no checkpoint is better than the start. Check the sign of the "
    "reward, of the advantages and of the loss (maximize in the optimizer) first, then the learning rate."
)
BROKEN = (
    "Score a good earlier answer manually with every reward function and read its log. Look for a judge or sandbox "
    "that does not respond, a missing parser or package, or an exception that ends in 0. Then resume from the last "
    "checkpoint before the fall."
)


class RewardCollapse(Detector):
    """Compares with the best mean so far, which no collapse can lower; the fall must exceed the run's own noise.

    Means of few rows detect a fall at once in a quiet run; noisy rewards need means of many rows.
    """

    explained_by = ("non-finite-metric", "stale-rollout-weights")
    part_of_collapse = True
    wastes = WasteKind.STEPS
    likely_causes = (*RATES, UNHELD)

    reads = (MetricRow, Tick)
    needs = (("reward_mean",),)
    share: float = param(0.66, "share of the best reward (or of the gain) that must be lost", 0, 1)

    def observe(self, record: MetricRow | Tick, run: RunView) -> Iterable[Reading]:
        """Judge one train row that carries the reward, or the last rows of a log that has ended."""
        if isinstance(record, Tick):
            ended = run.log_ended(record)
            low = ended is not False and run.trend.reward.ends_low(self.share)
            return _at_the_end(run, Severity.WARNING if ended else Severity.INFO) if low else SILENT
        if number(record, "reward_mean") is None:
            return SILENT
        reward, long = run.trend.reward, run.trend.long_reward
        if reward.mean is None:
            return no_data(NotYet("too few rows with a reward so far"))
        if reward.fell(self.share) or self._stuck(reward):
            rows = 3 if reward.fell(self.share) else reward.same
            return self._breach(run, reward.mean, reward.highest, rows)
        if long.fell(self.share, reward.noise, reward.mean or 0.0, reward.spread.highest):
            return self._breach(run, long.mean or 0.0, long.highest, ROWS - int((1 - self.share) * (ROWS - 1)))
        return QUIET

    def _stuck(self, reward: RewardTrend) -> bool:
        """Whether the reward has long been constant, far below the best."""
        return reward.same >= max(STUCK, 2 * reward.same_before) and reward.fell(min(self.share, HALF))

    @staticmethod
    def _breach(run: RunView, now: float, best: float, rows: int) -> Iterable[Reading]:
        """The breach; the newest ``rows`` rows must be low for the mean to have fallen this far."""
        trend = run.trend
        signs = trend.signs() & AGREEING
        broken = not signs and len(set(trend.reward.newest)) == 1 and trend.silent.mean == 1.0
        also = f"; {named(signs)}" if signs else ""
        rose = trend.reward.highest - (trend.reward.start or 0.0) > trend.reward.beyond_noise
        if broken and any(run.newest(metric) is not None for metric in OF_POLICY):
            also = ", the same for every completion, while the policy is unchanged: the reward function broke"
        elif broken:
            also = ", the same for every completion: the reward function or the policy broke"
        return breach(
            value=now,
            threshold=best,
            severity=Severity.CRITICAL if signs or broken else Severity.WARNING,
            message=f"reward fell from {_apart(best, now)}{also}",
            evidence={
                "reward_mean": shown(now),
                "best": shown(best),
                "noise": shown(run.trend.reward.noise),
            },
            hint=BROKEN if broken else "" if rose else NEVER_ROSE,
            first_step=run.recent.step_back("reward_mean", rows),
        )


def _at_the_end(run: RunView, severity: Severity) -> Iterable[Reading]:
    """A fall that the log is too short to confirm: a warning, or an info if more rows may come."""
    reward = run.trend.reward
    now = plain_sum(list(reward.newest)[-LAST:]) / LAST
    return breach(
        value=now,
        threshold=reward.highest,
        severity=severity,
        message=f"reward fell from {_apart(reward.highest, now)} within the last {LAST} rows of the log",
        evidence={"reward_mean": shown(now), "best": shown(reward.highest), "noise": shown(reward.noise)},
        first_step=run.recent.step_back("reward_mean", LAST),
        immediate=True,
    )


def _apart(best: float, now: float) -> str:
    """Both means, with more digits if a large constant in them would hide the fall: ``100.9 to 100.004``."""
    digits = 3 if best - now >= max(abs(best), abs(now)) / 10 else 6
    return f"{best:.{digits}g} to {now:.{digits}g}"


TOTAL = frozenset({"reward", "rewards", "reward/mean", "reward_mean", "mean_reward"})
"""Scores on the scale of the training reward, which should rise with it."""
REWARDS = TOTAL | {"score"}
MEANWHILE = 0.25
"""Share of the run's whole gain that must lie between the evaluations: half of a steady gain does by the eighth, and a
few percent of one that was nearly over by the first evaluation, which held-out scores can't show."""
GAMED = LikelyCause("An easy part of the reward (format, length) is gamed: read held-out answers, then training ones.")
MEMORISED = LikelyCause("The training prompts are known by now: more of them, fewer epochs.")
OTHER_SETTINGS = LikelyCause("Evaluation samples otherwise (temperature, length limit, template) than training.")


def rank(name: str) -> int:
    """How well a score measures the answers: 0 accuracies, 1 total rewards, 2 single reward functions (a penalty)."""
    if name.startswith("rewards/"):
        return 2
    return 0 if REWARDS.isdisjoint(name.split("/")) else 1


class Evaluations:
    """One score's first and newest ``few`` evaluations, each with the training reward at that time (None: no row yet).

    ``noise`` is the score's noise; ``scored`` says whether the score was ever other than 0.
    """

    def __init__(self, few: int) -> None:
        self.few, self.noise, self.scored = few, NoisyTrend(), False
        self.first: list[tuple[float, float | None]] = []
        self.newest: list[tuple[float, float | None]] = []

    def push(self, score: float, reward: float | None) -> None:
        """Take an evaluation."""
        self.noise.push(score)
        self.scored = self.scored or score != 0.0
        if len(self.first) < self.few:
            self.first.append((score, reward))
        self.newest = [*self.newest, (score, reward)][-self.few :]

    @property
    def at_zero(self) -> bool:
        """Whether the newest ``few`` scores are exactly 0."""
        return len(self.newest) == self.few and not any(score for score, _ in self.newest)

    @property
    def error(self) -> float:
        """Standard error of the change between the two means of ``few`` scores."""
        return self.noise.noise * sqrt(2.0 / self.few)

    def means(self, start: float) -> tuple[float, float, float, float]:
        """First score and training reward, then the newest ones; ``start`` replaces unknown rewards."""
        return (*_mean(self.first, start), *_mean(self.newest, start))


def _mean(evaluations: list[tuple[float, float | None]], start: float) -> tuple[float, float]:
    rewards = [start if reward is None else reward for _, reward in evaluations]
    return plain_sum([score for score, _ in evaluations]) / len(evaluations), plain_sum(rewards) / len(rewards)


class RewardEvalDivergence(Detector):
    """An audit, no early warning: it needs ``evaluations`` of them, and a change that noise does not explain.

    Half as many are enough if every score of the best rank is exactly 0 and one was above 0 before: none of the gain
    reaches held-out answers (a public run whose training reward went from 0.08 to 0.76). Scores that were never above 0
    may come from a benchmark that is too hard, which four evaluations don't tell from a fault.

    Two healthy recorded runs have more than eight (23 and 34). The larger fall of a score was 4.7 standard errors, but
    2.5 % of its first level, half of ``least``; ``share`` is a proposal.
    """

    explained_by = ("reward-components-diverge",)
    likely_causes = (GAMED, MEMORISED, OTHER_SETTINGS)

    stream = Stream.EVAL
    needs = (("eval_score", "reward_mean"),)
    evaluations: int = param(8, "evaluations from which it judges; half of them are the first and the newest", 4)
    errors: float = param(4.0, "standard errors by which the held-out score must have fallen", 1)
    least: float = param(0.05, "share of its first level by which the held-out score must have fallen", 0, 1)
    share: float = param(0.2, "share of the training reward's gain that a held-out reward at least has", 0, 1)

    def setup(self) -> None:
        """Start with no evaluations."""
        self.scores: dict[str, Evaluations] = {}

    def observe(self, record: MetricRow, run: RunView) -> Iterable[Reading]:
        """Judge the scores of one evaluation."""
        labels = {name: split_label(name)[1] or "" for name in record.values}
        found = {label: value for name, label in labels.items() if (value := number(record, name)) is not None}
        for name, value in found.items():
            scores = self.scores.setdefault(name, Evaluations(self.evaluations // 2))
            scores.push(value, run.trend.reward.mean)
        half = [name for name, scores in self.scores.items() if len(scores.newest) == scores.few]
        lowest = min(map(rank, half), default=0)
        half = [name for name in half if rank(name) == lowest]
        zero = half if all(self.scores[name].at_zero for name in half) else []
        zero = zero if any(self.scores[name].scored for name in zero) else []
        enough = [name for name in self.scores if self.scores[name].noise.rows + 1 >= self.evaluations] or zero
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
        if scores.at_zero:
            gain = _mean(scores.newest[-1:], start)[1] - _mean(scores.first[:1], start)[1]
        # the rewards are means over ``few`` values, so their noise is smaller
        least = max(trend.beyond_noise / sqrt(scores.few), MEANWHILE * (trend.highest - start))
        if not trend.gained() or gain < least or not (fell or flat or scores.at_zero):
            return Reading(Verdict.OK, name)
        how = f"fell by {-change:.3g}" if fell else f"changed by {change:.3g} only"
        how = f"is 0 in its newest {scores.few} evaluations" if scores.at_zero else how
        message = f"the training reward rose by {gain:.3g}, while the held-out {name} {how}"
        evidence: dict[str, Scalar] = {"evaluation": name, "change": round(change, 4)}
        evidence |= {"standard_error": round(error, 4), "reward_gain": round(gain, 4)}
        said = (change, 0.0, message, evidence)
        return Reading(Verdict.BREACH, name, *said, immediate=scores.at_zero)
