"""Prompts that come again too often, and prompts that get the same texts as at an earlier step."""

from __future__ import annotations

import hashlib
from collections import Counter, OrderedDict, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import comb, factorial, log10
from statistics import median
from typing import NamedTuple

from grpo_watch import lazy_re as re
from grpo_watch.detectors.rollouts.copies import shown, totals
from grpo_watch.engine.detector import QUIET, SILENT, Detector, NotYet, RunView, breach, no_data, param
from grpo_watch.engine.records import CompletionSummary, GroupSummary, Reading, Severity, Verdict
from grpo_watch.engine.reward_functions import contradicted
from grpo_watch.engine.window import Window, plain_sum

FEWEST = 3
"""Least number of batches that must repeat the order of the run's first ones …"""
DISTINCT = 8
"""… with at least this many distinct prompts together, so that equal order is no chance …"""
MOST = 16
"""… or this many batches, however few their prompts."""


LONGEST = 4096
"""Most batches of a run whose prompts are remembered in order."""


class _Drawn(NamedTuple):
    """A batch: checksum of its prompts, epoch of the newest row at that time, and step."""

    mark: int
    epoch: float | None
    step: int


def _mark(prompts: tuple[str, ...]) -> int:
    return int.from_bytes(hashlib.blake2b("\x1f".join(prompts).encode(), digest_size=8).digest(), "big")


class PromptOrder:
    """Tracks the prompts of a run's train batches, and whether they repeat the run's first ones."""

    def __init__(self, window: int) -> None:
        self.opening: list[tuple[str, ...]] = []  # the prompts of the first batches, until they can be recognised
        self._all: list[_Drawn] = []
        self.recent: deque[tuple[str, ...]] = deque(maxlen=window)
        self._matched = 0
        self._drawn: Counter[str] = Counter()

    def add_batch(self, prompts: tuple[str, ...], epoch: float | None, step: int) -> None:
        """Take a batch's prompts, one per group."""
        if len(self.recent) == self.recent.maxlen:
            self._drawn.subtract(self.recent[0])
            self._drawn = +self._drawn
        self.recent.append(prompts)
        self._drawn.update(prompts)
        if not self._telling() and len(self.opening) < MOST:
            self.opening.append(prompts)
        else:
            self._follow(_mark(prompts))
        if len(self._all) < LONGEST:
            self._all.append(_Drawn(_mark(prompts), epoch, step))

    def _telling(self) -> bool:
        """Whether the first batches differ from each other and hold enough prompts to be recognised."""
        prompts = {prompt for batch in self.opening for prompt in batch}
        long = len(self.opening) >= FEWEST and len(set(self.opening)) == len(self.opening)
        return long and (len(prompts) >= DISTINCT or len(self.opening) >= MOST)

    def _follow(self, mark: int) -> None:
        """Advance through the run's batches while new ones repeat them, else start over."""
        if self._matched < len(self._all) and mark == self._all[self._matched].mark:
            self._matched += 1
        else:
            self._matched = int(mark == self._all[0].mark)

    @property
    def repeats(self) -> _Drawn | None:
        """The earlier batch that the newest repeats, if the batches before it repeat the run's first ones in order."""
        return self._all[self._matched - 1] if self._telling() and self._matched >= len(self.opening) else None

    @property
    def full(self) -> bool:
        """Whether the window is full."""
        return len(self.recent) == self.recent.maxlen

    @property
    def distinct(self) -> int:
        """Distinct prompts in the window."""
        return len(self._drawn)

    @property
    def draws(self) -> int:
        """Prompts drawn in the window."""
        return self._drawn.total()


PLAYS = re.compile(r"tool|turn|\benv|episode", re.IGNORECASE)
"""Keys of runs in an environment, which differ in what happens after the same prompt."""
WHOLE = 0.02
"""Distance from a whole number of epochs within which an unshuffled dataset repeats its own order …"""
STEPS = 2.0
"""… or this many steps: a batch may be read before the row of its step, and a row may cover several steps."""


class RepeatedPrompts(Detector):
    """Compares each new train batch's prompts with the run's first batches, and with those of the newest window."""

    dashboards = ("grpo-sampling-weights",)

    reads = (CompletionSummary,)
    needs = (("completions",),)
    survives_attempts = True
    repeated: float = param(0.5, "share of the window's draws that repeat a prompt of the window", 0, 1)
    fresh: float = param(0.2, "the same share below which a window counts as fresh prompts", 0, 1)
    batches: int = param(10, "batches in the window", minimum=3)

    def setup(self) -> None:
        """Start with no prompts."""
        self.order = PromptOrder(self.batches)
        self.was_fresh = self.plays = False

    def observe(self, record: CompletionSummary, run: RunView) -> Iterable[Reading]:
        """Judge a batch, at the epoch of the newest row."""
        groups = record.groups
        if not groups:
            return SILENT
        epoch = run.newest("epoch")
        self.order.add_batch(tuple(group.prompt_id for group in groups), epoch, record.step)
        self.plays = self.plays or any(PLAYS.search(key) for row in run.recent.newest(1) for key in row.raw)
        return self._judge(epoch, record.step, max(1, run.step))

    def _judge(self, epoch: float | None, batch: int, step: int) -> Iterable[Reading]:
        order = self.order
        before = order.repeats
        if before is not None and epoch is not None and before.epoch is not None and batch != before.step:
            passed = epoch - before.epoch
            whole = round(passed) >= 1 and abs(passed - round(passed)) <= max(WHOLE, STEPS * epoch / step)
            if not whole:
                many = len(order.opening)
                message = f"the last {many} batches hold the prompts of the run's first {many}, in the same order"
                evidence = {"epoch": epoch, "batches": many}
                return breach(message=message, evidence=evidence, immediate=True)
        if not order.full:
            return no_data(NotYet("too few batches yet"))
        repeated = 1 - order.distinct / order.draws
        self.was_fresh = self.was_fresh or repeated < self.fresh
        if repeated < self.repeated:
            return QUIET
        return breach(
            value=repeated,
            threshold=self.repeated,
            message=f"the last {order.draws} prompts drawn hold only {order.distinct} different ones"
            if order.distinct > 1
            else f"the last {order.draws} prompts drawn are one and the same",
            evidence={"distinct_prompts": order.distinct, "draws": order.draws, "epoch": epoch},
            severity=None if self.was_fresh or (order.distinct == 1 and not self.plays) else Severity.INFO,
        )


PROMPTS = 4_096
"""Prompts whose newest texts are remembered, as 16 hashes of 32 bits each: 3 MB at most."""
APART = 2
"""Least distance in batches: an evaluation leaves parts of a batch in the next table (the buffers of TRL and
ms-swift)."""
DIFFERENT = 3
"""Least texts in a group that repeats as a whole: two likely answers do so in every second batch of groups of two."""


@dataclass(frozen=True, slots=True)
class RepeatedTexts:
    """Of ``completions`` of prompts that came again, ``repeated`` have a text that the prompt had at an earlier step.

    Solved groups, in which each text earns the best reward of the run, are left out, up to half of all: if nearly all
    are solved, the rest of a batch is the few prompts on which a policy is sure and wrong.

    Both count groups of long texts only; the other fields include short answers. ``whole`` groups of at least
    ``DIFFERENT`` texts, no two equal, come again in their order: a sampler that starts with the same random numbers, or
    a cache. ``log_chance`` is the decimal logarithm of the chance that so many do if texts are drawn independently:
    then each order is equally likely, however few the answers are. ``groups`` counts those that came again, ``last`` is
    the newest step at which one was seen before.
    """

    completions: int
    repeated: int
    groups: int
    whole: int
    last: int
    log_chance: float = 0.0


class PromptTexts:
    """Remembers the newest texts of each prompt.

    ``best`` is the highest total reward of any completion so far. ``doubtful``: the trainer computed advantages from
    other totals, so that any group of equal scores may be solved.
    """

    def __init__(self, min_characters: int) -> None:
        self._min = min_characters
        self._seen: OrderedDict[str, tuple[int, int, tuple[int, ...]]] = OrderedDict()
        self._batch, self.best, self.doubtful = 0, float("-inf"), False

    def compare_batch(self, groups: Sequence[GroupSummary], step: int) -> RepeatedTexts | None:
        """Compare a batch with earlier ones and remember it; None if no prompt came again."""
        self._batch += 1
        judged = [group for group in groups if group.prompts == 1 and group.marks]
        before = [(group, self._seen[group.prompt_id]) for group in judged if group.prompt_id in self._seen]
        again = [(group, step_, marks) for group, (batch, step_, marks) in before if self._batch - batch >= APART]
        rewards = [reward for group in groups for reward in totals(group)]
        self.best = max([self.best, *rewards])
        self.doubtful = self.doubtful or contradicted(groups)
        for group in judged:
            self._seen[group.prompt_id] = (self._batch, step, group.marks)
            self._seen.move_to_end(group.prompt_id)
        while len(self._seen) > PROMPTS:
            self._seen.popitem(last=False)
        if not again:
            return None
        long = [(group, marks) for group, _, marks in again if _long(group, self._min)]
        unsolved = [(group, marks) for group, marks in long if not self._solved(group)]
        whole = [g for g, _, marks in again if g.unique == g.size >= DIFFERENT and marks == g.marks]
        return RepeatedTexts(
            completions=max(_size(unsolved), -(-_size(long) // 2)),
            repeated=sum(_repeated(group, marks) for group, marks in unsolved),
            groups=len(again),
            whole=len(whole),
            last=max(earlier for _, earlier, _ in again),
            log_chance=min(
                0.0, log10(comb(len(again), len(whole))) - plain_sum(log10(factorial(len(g.marks))) for g in whole)
            ),
        )

    def _solved(self, group: GroupSummary) -> bool:
        """Whether every completion earns the best reward of the run, or may."""
        rewards = list(totals(group))
        if len(rewards) != group.size:
            return False
        return min(rewards) == max(rewards) if self.doubtful else min(rewards) >= self.best


def _size(groups: Sequence[tuple[GroupSummary, tuple[int, ...]]]) -> int:
    return sum(group.size for group, _ in groups)


def _repeated(group: GroupSummary, marks: tuple[int, ...]) -> int:
    """Completions whose text is known."""
    known = {number for number, mark in enumerate(group.marks) if mark in marks}
    return sum(number in known for number in group.pattern)


def _long(group: GroupSummary, characters: int) -> bool:
    return median(group.lengths) >= characters


WHOLE_GROUPS = 0.5
"""Share of the window's groups repeating as a whole from which the random numbers repeat."""
CHANCE = -9.0
"""Decimal logarithm of the chance below which equal order is no coincidence: two groups of eight are 10^-9.2."""
SAME_NUMBERS = (
    "Whole groups of different texts repeat: the engine is reseeded at each step, or generations come from a cache. "
    "Set no per-request seed, seed once at the start, and look for a cache or a replay buffer."
)


class RepeatedCompletions(Detector):
    """Averages the share of repeated completions over batches with known prompts."""

    explained_by = ("non-finite-metric", "duplicate-completions", "entropy-collapse")

    reads = (CompletionSummary,)
    needs = (("completions",),)
    repeated: float = param(0.5, "share of known prompts' completions that repeat a text of an earlier step", 0, 1)
    batches: int = param(3, "batches with known prompts that are averaged", minimum=2)
    min_characters: int = param(64, "median length below which a group may repeat answers legitimately", minimum=1)

    def setup(self) -> None:
        """Start with no prompts."""
        self.seen = PromptTexts(self.min_characters)
        self.shares, self.wholes, self.log_chance = Window(self.batches), Window(self.batches), 0.0

    def observe(self, record: CompletionSummary, run: RunView) -> Iterable[Reading]:
        """Judge a batch against batches at least two before it."""
        groups = run.functions.weighed(record.groups)
        if not groups:
            return SILENT
        found = self.seen.compare_batch(groups, record.step)
        if found is None:
            return SILENT if self.shares.full else no_data(NotYet("no prompt has come up again yet"))
        self.wholes.push(found.whole / found.groups)
        self.log_chance = self.log_chance + found.log_chance if found.whole >= WHOLE_GROUPS * found.groups else 0.0
        if found.completions:
            self.shares.push(found.repeated / found.completions)
        return self._judge(found, groups)

    def _judge(self, found: RepeatedTexts, groups: tuple[GroupSummary, ...]) -> Iterable[Reading]:
        share, whole = self.shares.mean() or 0.0, (self.wholes.mean() or 0.0) >= WHOLE_GROUPS
        if self.log_chance <= CHANCE:
            message = f"{found.whole} of {found.groups} groups repeat as a whole: the random numbers repeat"
            return (self._breach(found, groups, message, SAME_NUMBERS),)
        if not self.shares.full:
            return no_data(NotYet("too few batches with known prompts and long texts so far"))
        if share < self.repeated:
            return QUIET
        why = "whole groups repeat, so the random numbers do" if whole else "the policy gives the same answers again"
        message = f"{share:.0%} of the completions of known prompts repeat texts of an earlier step: {why}"
        return (self._breach(found, groups, message, SAME_NUMBERS if whole else ""),)

    def _breach(self, found: RepeatedTexts, groups: tuple[GroupSummary, ...], message: str, hint: str) -> Reading:
        share = self.shares.mean()
        return Reading(
            Verdict.BREACH,
            value=share,
            threshold=self.repeated,
            message=message,
            evidence={
                "repeated_ratio": None if share is None else round(share, 4),
                "groups_again": found.groups,
                "whole_groups": found.whole,
                "earlier_step": found.last,
                **shown(groups),
            },
            hint=hint,
        )
