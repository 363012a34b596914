"""Dumped advantages that contradict the rewards: other texts', another order, another baseline, groups or scale."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from enum import Enum
from math import sqrt
from typing import TypeAlias

from grpo_watch.detectors.reward.components import NOISE, AdvantageOrder, by_group, explained_by_signs, order_of
from grpo_watch.engine.detector import QUIET, SILENT, Detector, NotApplicable, NotYet, RunView, breach, no_data, param
from grpo_watch.engine.records import CompletionSummary, GroupSummary, MetricRow, Reading, Scalar, Severity, Verdict
from grpo_watch.engine.reward_functions import ADVANTAGE, names_of
from grpo_watch.engine.window import plain_sum

LARGEST = 1e100
"""Scores from this size on are not squared: the squares' sums may overflow."""
TEXTS, LENGTHS, SUMS = "texts", "lengths", "sums"
"""Keys of the alerts about other texts, column lengths and sums; the alert about the order has an empty key."""
CERTAIN, MUCH_LESS = 5.0, 1 / 3
"""Standard errors that chance does not reach in a run, and the largest share of them that the own text may reach."""
OTHERS = (
    "by their lengths, they fit the completion before",
    "by their lengths, they fit the completion after",
    "by their lengths, they fit the same place in the batch before",
)
SCORE_AGAIN = (
    "Score one dumped completion by hand and compare it with its row. Look for rewards that are kept between calls, "
    "for lists that are filtered, sorted or gathered in another order than the completions, and for scores by index."
)


class ScoresOfTexts:
    """Correlates rewards with the length of their own text and of neighbouring ones, summed over all batches.

    Within a group, completions are samples of one distribution in any order, so only the own text is no chance.
    """

    def __init__(self) -> None:
        self._sums = [[0.0, 0.0] for _ in range(1 + len(OTHERS))]  # product and variance: own, others
        self._before, self._known = list[float](), frozenset[int]()
        self.first_step = 0

    def judge_batch(self, groups: Sequence[GroupSummary], step: int) -> Reading:
        """Take a batch, and judge all batches so far."""
        lengths, scores = list[float](), list[float]()
        for group in groups:
            totals = _totals(group)
            if totals and not self._known.intersection(group.marks):  # else they would count twice
                lengths += _from_mean(group.lengths)
                scores += _from_mean(totals)
        others = [0.0, *lengths[:-1]], [*lengths[1:], 0.0], self._before
        self._before, self._known = lengths, frozenset(mark for group in groups for mark in group.marks)
        for sums, feature in zip(self._sums, (lengths, *others), strict=True):
            products = [one * other for one, other in zip(feature, scores, strict=False)] if scores else []
            sums[0] += plain_sum(products)
            sums[1] += plain_sum(product * product for product in products)
        own, *found = [abs(product) / sqrt(squares) if squares else 0.0 for product, squares in self._sums]
        errors = max(found)
        if errors < CERTAIN or own > MUCH_LESS * errors:
            self.first_step = 0
            return Reading(Verdict.OK, TEXTS)
        self.first_step = self.first_step or step
        message = f"rewards do not follow their texts: {OTHERS[found.index(errors)]}"
        evidence: dict[str, Scalar] = {"standard_errors": round(errors, 1), "own_standard_errors": round(own, 1)}
        reading = Reading(Verdict.BREACH, TEXTS, message=message, evidence=evidence)
        return replace(reading, hint=SCORE_AGAIN, first_step=self.first_step)


def _totals(group: GroupSummary) -> list[float]:
    """The sum of all functions' scores per completion; empty if a score is missing or too large to be squared."""
    functions = [[score for score in group.rewards[name] if score is not None] for name in names_of(group)]
    if not functions or group.prompts != 1 or any(len(column) < group.size for column in functions):
        return []
    totals = [plain_sum(each) for each in zip(*functions, strict=True)]
    return totals if all(abs(total) < LARGEST for total in totals) else []


def _from_mean(values: Sequence[float]) -> list[float]:
    mean = plain_sum(values) / len(values)
    return [value - mean for value in values]


CENTRE = (
    "GRPO subtracts the mean of each group's rewards: look at how rewards are reshaped to (prompts, num_generations), "
    "and at what clips or replaces advantages afterwards."
)
WHOLE = 0.5
"""Share of groups whose advantages do not sum to 0 that is a breach; an estimator centres all groups or none."""

Both: TypeAlias = tuple[tuple[GroupSummary, ...], tuple[GroupSummary, ...]]
"""The groups with weighted scores, and as dumped: the columns may be in another order than the weights."""


class RewardMisaligned(Detector):
    """Compares, inside groups, the order of the advantages with that of the rewards, and sums the advantages."""

    reads = (CompletionSummary,)
    needs = (("completions",),)
    against: float = param(0.3, "share of clear pairs with reversed advantages that fires (chance: 0.5)", 0, 1)
    pairs: int = param(20, "clear pairs needed in a batch", minimum=1)
    batches: int = param(3, "batches in a row that must show it", minimum=1)

    def setup(self) -> None:
        """Start with no batches."""
        self.streak = self.first_step = self.uncentred = 0
        self.scores = ScoresOfTexts()

    def observe(self, record: CompletionSummary, run: RunView) -> Iterable[Reading]:
        """Judge one batch."""
        dumped = record.groups
        if not dumped:
            return SILENT
        if record.by_prompt:
            return no_data("no dump holds advantages and rewards")
        texts = self.scores.judge_batch(run.functions.weighed(dumped), record.step)
        return (_lengths(record), texts, *self._order((run.functions.weighed(dumped), dumped), record.step, run))

    def _order(self, read: Both, step: int, run: RunView) -> Iterable[Reading]:
        order = order_of(read[0])
        if not order.groups:
            return no_data("no dump holds advantages and rewards")
        self.uncentred = self.uncentred + 1 if order.off_centre > WHOLE * order.groups else 0
        return (*self._turned(order, read, step), self._sums(order, run))

    def _turned(self, order: AdvantageOrder, read: Both, step: int) -> Iterable[Reading]:
        if order.pairs < self.pairs:
            return SILENT
        share = order.against / order.pairs
        if share < self.against or any(explained_by_signs(groups, self.pairs) for groups in read):
            self.streak = 0
            return QUIET
        self.first_step = self.first_step if self.streak else step
        self.streak += 1
        if self.streak < self.batches:
            return no_data(NotYet("advantages contradict the rewards in too few batches so far"))
        of = f"{order.against} of {order.pairs}"
        return breach(
            value=share,
            threshold=self.against,
            message=f"in {of} pairs inside groups, the completion with the higher rewards has the lower advantage",
            evidence={"against_ratio": round(share, 4), "pairs": order.pairs, "groups": order.groups},
            first_step=self.first_step,
            immediate=True,
        )

    def _sums(self, order: AdvantageOrder, run: RunView) -> Reading:
        """A warning in TRL, whose estimators all centre by group; others have estimators that don't."""
        if self.uncentred < self.batches:
            return Reading(Verdict.OK, SUMS)
        message = f"the advantages of {order.off_centre} of {order.groups} groups do not sum to 0"
        evidence = {"off_centre": order.off_centre, "groups": order.groups}
        severity = Severity.WARNING if run.framework == "trl" else Severity.INFO
        reading = Reading(Verdict.BREACH, SUMS, message=message, evidence=evidence, severity=severity)
        return replace(reading, headline="Advantages are not centred in their groups", hint=CENTRE)


def _lengths(record: CompletionSummary) -> Reading:
    if not record.odd:
        return Reading(Verdict.OK, LENGTHS)
    names = ", ".join(record.odd[:5])
    message = f"{names}: the number of values differs from the number of completions, so they cannot be assigned"
    return Reading(Verdict.BREACH, LENGTHS, message=message, evidence={"columns": names})


CLOSE = 0.02
"""How far advantages may be off from those that the rewards give, as a share of the largest: bfloat16 keeps 0.4 %, and
an epsilon of 1e-4 beside a deviation of 0.01 takes 1 %."""


def bound(size: float) -> float:
    """The largest advantage, in size, of a group whose rewards are centred and divided by their deviation.

    One completion against all others: its distance from the mean is (G - 1) / G of the gap, the population's deviation
    sqrt(G - 1) / G of it. The sample's deviation is larger.
    """
    return sqrt(max(size - 1.0, 0.0))


class Arithmetic(Enum):
    """How the advantages of a group come from its rewards."""

    RIGHT = "right"
    MASKED_VOTE = "the baseline holds samples that are masked out of the loss"
    OTHER = "no baseline of this group gives them"
    UNCLEAR = "nothing shows"


def arithmetic(group: GroupSummary) -> Arithmetic:
    """Check that the advantages that count are proportional to their rewards' distance from the group's mean.

    That holds with any deviation or none, and for leave-one-out baselines (factor G / (G - 1)). ``None`` among the
    advantages is a sample that is masked out of the loss.
    """
    totals, advantages = _totals(group), group.rewards.get(ADVANTAGE)
    if advantages is None or not totals:
        return Arithmetic.UNCLEAR
    counted = [(total, value) for total, value in zip(totals, advantages, strict=True) if value is not None]
    largest = max((abs(value) for _, value in counted), default=0.0)
    if largest < NOISE or not largest < LARGEST:
        return Arithmetic.UNCLEAR
    everyone, valid = plain_sum(totals) / len(totals), plain_sum(total for total, _ in counted) / len(counted)
    if _proportional(counted, valid, largest):
        return Arithmetic.RIGHT
    if len(counted) < group.size and _proportional(counted, everyone, largest):
        return Arithmetic.MASKED_VOTE
    centred = abs(plain_sum(value for _, value in counted)) <= CLOSE * plain_sum(abs(value) for _, value in counted)
    mixed = not centred and len(counted) == group.size and _contrary(counted, everyone, largest)
    return Arithmetic.OTHER if mixed else Arithmetic.UNCLEAR


def _contrary(counted: Sequence[tuple[float, float]], mean: float, largest: float) -> bool:
    """Whether an advantage and its total's distance from ``mean`` differ in sign, beyond rounding.

    Clipping, zeroing the negative ones and weighting by length keep the sign, though not the order.
    """
    farthest = max(abs(total - mean) for total, _ in counted)
    return any(
        (total - mean) * value < 0.0 and abs(total - mean) > CLOSE * farthest and abs(value) > CLOSE * largest
        for total, value in counted
    )


def _proportional(counted: Sequence[tuple[float, float]], mean: float, largest: float) -> bool:
    """Whether the advantages are proportional to the distance of their totals from ``mean``, with a positive factor."""
    squares = plain_sum((total - mean) ** 2 for total, _ in counted)
    factor = plain_sum((total - mean) * value for total, value in counted) / squares if squares > 0.0 else 0.0
    return factor > 0.0 and all(abs(value - factor * (total - mean)) <= CLOSE * largest for total, value in counted)


VOTES, MIXED = "masked", "mixed"
"""Keys of the two alerts."""


class AdvantageArithmetic(Detector):
    """Recomputes advantages group by group. Mixed groups are reported only if the settings centre by group."""

    reads = (CompletionSummary,)
    explained_by = ("reward-misaligned", "mixed-prompt-group")

    needs = (("completions",),)
    share: float = param(0.5, "share of the groups that can tell, whose advantages are wrong, that is a breach", 0.1, 1)

    def observe(self, record: CompletionSummary, run: RunView) -> Iterable[Reading]:
        """Judge one batch."""
        if not record.groups:
            return SILENT
        size = run.number("num_generations")
        whole = [group for group in record.groups if not record.by_prompt or group.size == size]
        found = Counter(arithmetic(group) for group in run.functions.weighed(tuple(whole)))
        wrong, other = found[Arithmetic.MASKED_VOTE], found[Arithmetic.OTHER]
        clear = wrong + other + found[Arithmetic.RIGHT]
        if not clear:
            return no_data("no dump holds advantages that can be recomputed")
        grouped = by_group(run.setting("scale_rewards")) and not run.setting("leave_one_out")
        mixed = other if grouped else 0
        return (
            self._reading(VOTES, wrong, clear, Arithmetic.MASKED_VOTE),
            self._reading(MIXED, mixed, clear, Arithmetic.OTHER),
        )

    def _reading(self, key: str, wrong: int, clear: int, how: Arithmetic) -> Reading:
        if wrong < self.share * clear or not wrong:
            return Reading(Verdict.OK, key)
        message = f"the advantages of {wrong} of {clear} groups are not those of their rewards: {how.value}"
        return Reading(Verdict.BREACH, key, message=message, evidence={"wrong": wrong, "groups": clear})


UNSCALED_LIMIT = 1e3
"""Advantage that outweighs a usual KL penalty (0.001 to 0.1 times a KL of up to 1) a million times, and any clip."""
DIVIDE = (
    "Bring rewards to about 1 (divide them, or leave scale_rewards at group); beta and max_grad_norm are made for that."
)
SMALLER = "Bring rewards to about 1 (divide them, or leave scale_rewards at group); max_grad_norm is made for that."
EXTREMES = ("advantage_max", "advantage_min")


class AdvantageOutOfBounds(Detector):
    """Compares with the largest possible advantage (``bound``); with leave-one-out, with one that no real spread gives.

    The largest advantage of the healthy recorded runs that dump or log them was 0.94 of the bound.
    """

    reads = (MetricRow, CompletionSummary)

    needs = (EXTREMES, ("completions",))
    margin: float = param(1.05, "factor on the bound, for rounding", minimum=1)
    leave_one_out: float = param(500.0, "advantage that is a breach with a leave-one-out baseline", minimum=10)

    def observe(self, record: MetricRow | CompletionSummary, run: RunView) -> Iterable[Reading]:
        """Judge the extremes of a row, or of a dumped batch."""
        if isinstance(record, MetricRow):
            size, values = run.number("num_generations"), [record.values.get(metric) for metric in EXTREMES]
        else:
            sizes = [float(group.size) for group in record.groups]
            size = max([*sizes, run.number("num_generations") or 0.0]) if sizes else None  # dumps may be partial
            values = [value for group in record.groups for value in group.rewards.get(ADVANTAGE, ())]
        known = [value for value in values if value is not None]
        if not known or size == 1:  # a group of one is not centred: group-size-one
            return SILENT
        scaled = by_group(run.setting("scale_rewards"))
        worst = max(known, key=abs)
        if not scaled and abs(worst) > UNSCALED_LIMIT:
            return _unscaled(worst, run.number("beta") or 0.0)
        if not scaled or not size:
            why = "how advantages are scaled is not known (scale_rewards), or the group size (num_generations)"
            return no_data(why if scaled is not False else NotApplicable("no group's deviation divides advantages"))
        alone = bool(run.setting("leave_one_out"))
        limit = self.leave_one_out if alone else self.margin * bound(size)
        if abs(worst) <= limit:
            return QUIET
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


def _unscaled(worst: float, beta: float) -> Iterable[Reading]:
    """A warning beside a KL penalty; without one, an optimizer that normalises gradients may cope."""
    message = f"an advantage of {worst:.6g}: nothing divides rewards"
    message += ", and the KL penalty has no weight beside them" if beta > 0.0 else ""
    return breach(
        value=abs(worst),
        threshold=UNSCALED_LIMIT,
        severity=None if beta > 0.0 else Severity.INFO,
        message=message,
        evidence={"advantage": worst},
        hint=DIVIDE if beta > 0.0 else SMALLER,
        headline="Advantages are not scaled",
    )
