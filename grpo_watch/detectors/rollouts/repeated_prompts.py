"""The run draws recent prompts again: the data order restarted, or a few prompts come up again and again."""

from __future__ import annotations

import hashlib
import re
from collections import Counter, deque
from collections.abc import Iterable
from typing import NamedTuple

from grpo_watch.engine.detector import QUIET, SILENT, Detector, NotYet, RunView, breach, no_data, param
from grpo_watch.engine.records import CompletionSummary, Reading, Severity

FEWEST = 3
"""Batches that must agree in order with the run's first ones …"""
DISTINCT = 8
"""… together holding so many distinct prompts, so that equal order is no chance …"""
MOST = 16
"""… but not more batches than this."""


LONGEST = 4096
"""Batches of a run whose prompts are remembered in order."""


class _Drawn(NamedTuple):
    """A batch: the checksum of its prompts, the epoch of the newest row then, its step."""

    mark: int
    epoch: float | None
    step: int


def _mark(prompts: tuple[str, ...]) -> int:
    return int.from_bytes(hashlib.blake2b("\x1f".join(prompts).encode(), digest_size=8).digest(), "big")


class PromptOrder:
    """Follows the prompts of a run's train batches."""

    def __init__(self, window: int) -> None:
        self.opening: list[tuple[str, ...]] = []  # the prompts of the first batches, until they are telling
        self._all: list[_Drawn] = []
        self.recent: deque[tuple[str, ...]] = deque(maxlen=window)
        self._matched = 0
        self._drawn: Counter[str] = Counter()

    def take(self, prompts: tuple[str, ...], epoch: float | None, step: int) -> None:
        """Add the prompts of a new batch, one per group."""
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
        """Whether the first batches differ from each other and hold enough prompts."""
        prompts = {prompt for batch in self.opening for prompt in batch}
        long = len(self.opening) >= FEWEST and len(set(self.opening)) == len(self.opening)
        return long and (len(prompts) >= DISTINCT or len(self.opening) >= MOST)

    def _follow(self, mark: int) -> None:
        """Go on along all batches of the run while the newest ones repeat them."""
        if self._matched < len(self._all) and mark == self._all[self._matched].mark:
            self._matched += 1
        else:
            self._matched = int(mark == self._all[0].mark)

    @property
    def repeats(self) -> _Drawn | None:
        """The earlier batch that the newest one repeats, where those before it repeat the run's first ones in order."""
        return self._all[self._matched - 1] if self._telling() and self._matched >= len(self.opening) else None

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


PLAYS = re.compile(r"tool|turn|\benv|episode", re.IGNORECASE)
"""Keys of runs in an environment, whose prompt is the same by design while what happens in it differs."""
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
        """Nothing drawn."""
        self.order = PromptOrder(self.batches)
        self.was_fresh = self.plays = False

    def observe(self, record: CompletionSummary, run: RunView) -> Iterable[Reading]:
        """Judge a batch, at the epoch of the newest row."""
        groups = record.groups
        if not groups:
            return SILENT
        epoch = run.newest("epoch")
        self.order.take(tuple(group.prompt_id for group in groups), epoch, record.step)
        self.plays = self.plays or (len(run.recent) > 0 and any(map(PLAYS.search, run.recent[-1].raw)))
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
