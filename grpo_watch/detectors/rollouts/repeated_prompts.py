"""The run draws recent prompts again: the data order restarted, or a few prompts come up again and again."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable
from dataclasses import dataclass
from types import MappingProxyType

from grpo_watch.detectors.shared.generations import NewBatches
from grpo_watch.engine.detector import QUIET, SILENT, Detector, NotYet, Param, RunView, no_data
from grpo_watch.engine.records import CompletionSummary, Reading, Severity, Verdict

FEWEST = 3
"""Batches that must agree in order with the run's first ones …"""
DISTINCT = 8
"""… together holding so many distinct prompts, so that equal order is no chance …"""
MOST = 16
"""… but not more batches than this."""


@dataclass(frozen=True, slots=True)
class FirstPrompts:
    """The prompts of the run's first batches, in order, with the epoch of the last of them (None: not logged)."""

    batches: tuple[tuple[str, ...], ...]
    epoch: float | None

    @property
    def telling(self) -> bool:
        """Whether the batches differ from each other and hold enough prompts."""
        prompts = {prompt for batch in self.batches for prompt in batch}
        long = len(self.batches) >= FEWEST and len(set(self.batches)) == len(self.batches)
        return long and (len(prompts) >= DISTINCT or len(self.batches) >= MOST)


class PromptOrder:
    """Follows the prompts of a run's train batches."""

    def __init__(self, window: int) -> None:
        self.opening = FirstPrompts((), None)
        self.recent: deque[tuple[str, ...]] = deque(maxlen=window)
        self._matched = 0
        self._drawn: Counter[str] = Counter()

    def take(self, prompts: tuple[str, ...], epoch: float | None) -> None:
        """Add the prompts of a new batch, one per group."""
        if len(self.recent) == self.recent.maxlen:
            self._drawn.subtract(self.recent[0])
            self._drawn = +self._drawn
        self.recent.append(prompts)
        self._drawn.update(prompts)
        if not self.opening.telling and len(self.opening.batches) < MOST:
            self.opening = FirstPrompts((*self.opening.batches, prompts), epoch)
        else:
            self._follow(prompts)

    def _follow(self, prompts: tuple[str, ...]) -> None:
        first = self.opening.batches
        if self._matched < len(first) and prompts == first[self._matched]:
            self._matched += 1
        else:
            self._matched = 1 if prompts == first[0] else 0

    @property
    def started_over(self) -> bool:
        """Whether the newest batches repeat the run's first ones in order."""
        return self.opening.telling and self._matched == len(self.opening.batches)

    @property
    def full(self) -> bool:
        """Whether the window is."""
        return len(self.recent) == self.recent.maxlen

    @property
    def distinct(self) -> int:
        """Distinct prompts in the window."""
        return len(self._drawn)

    @property
    def draws(self) -> int:
        """Prompts drawn in the window."""
        return self._drawn.total()


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
    params = MappingProxyType(
        {
            "repeated": Param(0.5, "share of the window's draws that repeat a prompt of the window", 0, 1),
            "fresh": Param(0.2, "the same share below which a window counts as fresh prompts", 0, 1),
            "batches": Param(10, "batches in the window", minimum=3),
        }
    )
    repeated: float
    fresh: float
    batches: int

    def setup(self) -> None:
        """Nothing drawn."""
        self.new = NewBatches()
        self.order = PromptOrder(self.batches)
        self.was_fresh = False

    def observe(self, record: CompletionSummary, run: RunView) -> Iterable[Reading]:
        """Judge a batch, at the epoch of the newest row."""
        groups = self.new.take(record)
        if not groups:
            return SILENT
        epoch = run.newest("epoch")
        self.order.take(tuple(group.prompt_id for group in groups), epoch)
        return self._judge(epoch, max(1, run.step))

    def _judge(self, epoch: float | None, step: int) -> Iterable[Reading]:
        order, first = self.order, self.order.opening.epoch
        if order.started_over and epoch is not None and first is not None:
            passed = epoch - first
            if abs(passed - round(passed)) > max(WHOLE, STEPS * epoch / step):
                many = len(order.opening.batches)
                message = f"the last {many} batches hold the prompts of the run's first {many}, in the same order"
                evidence = {"epoch": epoch, "batches": many}
                return (Reading(Verdict.BREACH, message=message, evidence=evidence, immediate=True),)
        if not order.full:
            return no_data(NotYet("too few batches yet"))
        repeated = 1 - order.distinct / order.draws
        self.was_fresh = self.was_fresh or repeated < self.fresh
        if repeated < self.repeated:
            return QUIET
        return (
            Reading(
                Verdict.BREACH,
                value=repeated,
                threshold=self.repeated,
                message=f"the last {order.draws} prompts drawn hold only {order.distinct} different ones",
                evidence={"distinct_prompts": order.distinct, "draws": order.draws, "epoch": epoch},
                severity=None if self.was_fresh else Severity.INFO,
            ),
        )
