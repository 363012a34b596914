"""Whether rewards follow their own texts, or other texts, or the place in the group."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from math import sqrt

from grpo_watch.engine.records import GroupSummary, Reading, Scalar, Severity, Verdict
from grpo_watch.engine.reward_functions import names_of
from grpo_watch.engine.window import plain_sum

TEXTS = "texts"
"""Key of the alert about rewards that don't follow the texts."""
LARGEST = 1e100
"""Scores from which on squares and their sums may be no floats."""
CERTAIN, MUCH_LESS = 5.0, 1 / 3
"""Standard errors that chance does not reach in a run, and the share of them that its own text may show."""
EQUAL_PAIRS, AS_DIFFERENT = 50, 0.7
"""Pairs of equal texts needed, and the mean square between their rewards as a share of that between other texts': a
judge that samples scores equal texts differently, too, but less so."""
PLACES = 6
"""Completions of a group from which the middle ones show a trend: the first or last may be an expert's."""
SORTED = 0.9
"""Share of the groups with a trend that rise or fall throughout, from which on the dump is sorted by its rewards."""
OTHERS = (
    "by their lengths, they fit the completion before",
    "by their lengths, they fit the completion after",
    "by their lengths, they fit the same place in the batch before",
)
PLACE = "rewards rise or fall with the place in the group"
EQUAL = "rewards of equal completions differ as much as those of other ones"
SCORE_AGAIN = (
    "Score one dumped completion by hand and compare it with its row. Look for rewards that are kept between calls, "
    "for lists that are filtered, sorted or gathered in another order than the completions, and for scores by index."
)


class ScoresOfTexts:
    """Sums over all batches of what rewards follow: their own text's length, another one's, or the place in the group.

    Within a group, completions are samples of one distribution in any order, so that all but the own text is chance.
    The place is an info all the same (a filter, a half with hints), and so are equal texts: a random environment, a
    binary judge that samples, and a penalty for copies score them differently.
    """

    def __init__(self) -> None:
        self._sums = [[0.0, 0.0] for _ in range(2 + len(OTHERS))]  # product and variance: own, place, others
        self._pairs = [[0.0, 0.0], [0.0, 0.0]]  # number and squares: different texts, equal ones
        self._groups = [0, 0]  # with a spread, and of these the sorted ones
        self._before, self._known = list[float](), frozenset[int]()
        self.first_step = 0

    def judge(self, groups: Sequence[GroupSummary], step: int) -> Reading:
        """Take a batch, and judge all so far."""
        lengths, scores, places = list[float](), list[float](), list[float]()
        for group in groups:
            totals = _totals(group)
            if not totals or self._known.intersection(group.marks):
                continue  # texts of the batch before (one seed for each step): their chance would count again
            centred = _from_mean(totals)
            lengths += _from_mean(group.lengths)
            scores += centred
            middle = group.size >= PLACES
            ends = {0, group.size - 1}
            places += [0.0 if at in ends or not middle else at - (group.size - 1) / 2 for at in range(group.size)]
            self._take(group, centred)
        others = [0.0, *lengths[:-1]], [*lengths[1:], 0.0], self._before
        self._before, self._known = lengths, frozenset(mark for group in groups for mark in group.marks)
        for sums, feature in zip(self._sums, (lengths, places, *others), strict=True):
            products = [one * other for one, other in zip(feature, scores, strict=False)] if scores else []
            sums[0] += plain_sum(products)
            sums[1] += plain_sum(product * product for product in products)
        said, grave, evidence = self._said()
        self.first_step = (self.first_step or step) if said else 0
        if not said:
            return Reading(Verdict.OK, TEXTS)
        message, severity = (f"rewards do not follow their texts: {said}", None) if grave else (said, Severity.INFO)
        reading = Reading(Verdict.BREACH, TEXTS, message=message, evidence=evidence, severity=severity)
        headline = "" if grave else "Rewards depend on more than the text"
        return replace(reading, hint=SCORE_AGAIN, first_step=self.first_step, headline=headline)

    def _take(self, group: GroupSummary, centred: Sequence[float]) -> None:
        """Count the sorted groups, and add up the squares between equal and between different texts."""
        pairs = list(pairwise(centred))
        self._groups[0] += any(centred)
        self._groups[1] += any(centred) and (all(a <= b for a, b in pairs) or all(a >= b for a, b in pairs))
        texts: dict[int, list[float]] = {}
        for number, length, score in zip(group.pattern, group.lengths, centred, strict=True):
            if length:  # an empty text may hide what was not dumped
                texts.setdefault(number, []).append(score)
        found = [_between(scores) for scores in texts.values()]
        equal = [plain_sum(each) for each in zip(*found, strict=True)] or [0.0, 0.0]
        of_all = _between([score for scores in texts.values() for score in scores])
        for pair, (count, squares) in zip(
            self._pairs, ((of_all[0] - equal[0], of_all[1] - equal[1]), equal), strict=True
        ):
            pair[0], pair[1] = pair[0] + count, pair[1] + squares

    def _said(self) -> tuple[str, bool, dict[str, Scalar]]:
        own, place, *others = [abs(product) / sqrt(squares) if squares else 0.0 for product, squares in self._sums]
        place = 0.0 if self._groups[1] >= SORTED * self._groups[0] else place / 1.5
        for said, errors in (max(zip(OTHERS, others, strict=True), key=lambda one: one[1]), (PLACE, place)):
            if errors >= CERTAIN and own <= MUCH_LESS * errors:
                return said, said != PLACE, {"standard_errors": round(errors, 1), "own_standard_errors": round(own, 1)}
        (different, apart), (equal, within) = self._pairs
        if equal >= EQUAL_PAIRS <= different and apart > 0.0 and within / equal >= AS_DIFFERENT * apart / different:
            return EQUAL, False, {"equal_pairs": round(equal)}
        return "", False, {}


def _totals(group: GroupSummary) -> list[float]:
    """The sum of all functions' scores; nothing where one is missing, or too large to be squared."""
    functions = [[score for score in group.rewards[name] if score is not None] for name in names_of(group)]
    if not functions or group.prompts != 1 or any(len(column) < group.size for column in functions):
        return []
    totals = [plain_sum(each) for each in zip(*functions, strict=True)]
    return totals if all(abs(total) < LARGEST for total in totals) else []


def _between(values: Sequence[float]) -> tuple[int, float]:
    """The number of pairs, and the sum of the squares of their differences, in one pass."""
    count, total = len(values), plain_sum(values)
    squares = count * plain_sum(value * value for value in values) - total * total
    return count * (count - 1) // 2, max(0.0, squares)


def _from_mean(values: Sequence[float]) -> list[float]:
    mean = plain_sum(values) / len(values)
    return [value - mean for value in values]
