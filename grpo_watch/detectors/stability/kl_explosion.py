"""KL to the reference jumps or stays high without a matching reward gain."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import replace
from math import inf

from grpo_watch.detectors.shared.generations import GenerationRows
from grpo_watch.detectors.shared.likely_causes import RATES, UNHELD
from grpo_watch.engine.detector import QUIET, SILENT, Detector, RunView, breach, param
from grpo_watch.engine.evidence import number
from grpo_watch.engine.records import MetricRow, Reading, Severity, Verdict
from grpo_watch.engine.traits import LikelyCause, WasteKind
from grpo_watch.engine.trend import TrendSign, named, shown
from grpo_watch.engine.window import Window

FIRST_STEPS = 2
"""Steps that hardly changed the weights, so that a KL to the starting policy is still near 0."""
OFFSET, STEADY = 0.3, 1.25
"""KL (nats per token) on these steps, and the largest ratio between them, that show another reference.

Distillation from a teacher begins at 0.5 to 0.85 in public runs; an explosion does not stand still.
"""


ORIGIN = "reference"
"""Key of the alert about a KL that starts high."""
FROM_BASE = (
    "Where training continues an adapter, give the reference the same one (ms-swift: --adapters and --ref_adapters; "
    "TRL#3194, #6591): with the adapter disabled the reference is the raw base model. A teacher is another one."
)
LEAST = 3
"""Rows that must agree."""
HALF_UNIT = 0.5e-4
"""Rounding error of a printed loss: the Trainer prints four decimals (transformers)."""
SHARP = 1.5
"""Largest ratio of the two bounds that still determines beta."""


class BetaFit:
    """Bounds of beta from rows on which the loss is nothing but beta times KL.

    That is so where each batch is used once: the advantages of a group cancel, and the policy's part of the loss is 0
    (TRL, ms-swift and Unsloth; huggingface/trl#2703, huggingface/open-r1#239). Elsewhere rows contradict each other,
    and beta stays unknown.
    """

    __slots__ = ("_high", "_low", "_rows")

    def __init__(self) -> None:
        self._low, self._high, self._rows = 0.0, inf, 0

    def push(self, loss: float | None, kl: float) -> None:
        """Take the loss and the absolute KL (nats per token, above 0) of a row."""
        if loss is not None:
            self._rows += 1
            self._low = max(self._low, (loss - HALF_UNIT) / kl)
            self._high = min(self._high, (loss + HALF_UNIT) / kl)

    def at_most(self, bound: float, known: float | None) -> bool:
        """Whether beta is at most ``bound``: by the settings (``known``), else by the rows if they determine it."""
        if known is not None:
            return known <= bound
        named = self._rows >= LEAST and 0.0 < self._low <= self._high <= SHARP * self._low
        return named and self._low <= bound


AGREEING = frozenset(
    {TrendSign.REWARD_FELL, TrendSign.SPREAD_LOST, TrendSign.CUT_OFF, TrendSign.TEXTS_REPEAT, TrendSign.LENGTH_FELL}
)
WHILE_GAINING = frozenset({TrendSign.REWARD_FELL, TrendSign.SPREAD_LOST, TrendSign.TEXTS_REPEAT})
"""Second signs that count while the reward does well; lengths may change by learning then."""


RUNAWAY = 100.0
"""KL (nats per token) that no useful policy reaches; public runs that went this far had lost their reward or never had
any (torchforge#664: a mean of 1.5e6)."""
OTHER_REFERENCE = LikelyCause(
    "Training continues from an adapter. Unless the reference uses it too, KL is measured from the base model.",
    {"adapter": ("true",), "adapter_continued": ("true",)},
)


def another_reference(kl: float) -> Reading:
    """A reading for a KL that is high before training could change an adapter: the reference is the base alone."""
    return Reading(
        Verdict.BREACH,
        ORIGIN,
        value=kl,
        threshold=OFFSET,
        message=f"KL to the reference is {kl:.3g} at step {FIRST_STEPS}, before training could change the policy: "
        "the reference is another model than the one training started from",
        evidence={"kl_reference": kl},
        immediate=True,
        hint=FROM_BASE,
    )


BEFORE_UPDATE = frozenset({"trl", "ms-swift", "unsloth"})
"""Frameworks that log a step's KL before its update, so that the first one is 0 by construction."""
NOT_THE_START = (
    "Load the reference from the weights that training starts from (a teacher is another model on purpose), and set "
    "dropout to 0 in the policy's configuration: in train mode its log-probabilities are random."
)


def before_any_update(kl: float) -> Reading:
    """A reading for a full model's high KL at the first step: another reference, or a random policy (dropout)."""
    message = (
        f"KL to the reference is {kl:.3g} before the first update: the reference is another model, or dropout is on"
    )
    reading = Reading(Verdict.BREACH, ORIGIN, kl, OFFSET, message, {"kl_reference": kl}, severity=Severity.INFO)
    return replace(reading, immediate=True, hint=NOT_THE_START, headline="KL does not begin at 0")


def one_row(kl: float, limit: float) -> Reading:
    """An info about a single spike."""
    return Reading(
        Verdict.BREACH,
        value=kl,
        threshold=limit,
        severity=Severity.INFO,
        message=f"KL to the reference is {kl:.3g} on one row",
        evidence={"kl_reference": kl, "rows": 1},
        immediate=True,
    )


class KlExplosion(Detector):
    """Judges the median of the newest absolute values (k1 is signed), so that a single spike is at most an info.

    A row that reuses a batch replaces the row before, so that an odd batch counts as one row. If the first steps
    already show a high and steady KL, the reference is another model (a teacher), not the starting policy: a warning.
    """

    explained_by = ("non-finite-metric", "stale-rollout-weights")
    part_of_collapse = True
    wastes = WasteKind.STEPS_IF_CRITICAL
    likely_causes = (*RATES, OTHER_REFERENCE, UNHELD)

    needs = (("kl_reference",),)
    level: float = param(1.5, "KL (nats per token) that is a breach without a reward gain", minimum=0)
    limit: float = param(5.0, "KL that is always a breach (ms-swift >= 4.1 caps each token at 10)", minimum=0)
    jump: float = param(10.0, "multiple of the median of the last 20 calm rows that is a jump", minimum=1)
    jump_floor: float = param(0.5, "KL below which nothing is a jump", minimum=0)
    rows: int = param(5, "number of rows in the judged median", minimum=3)
    tiny_beta: float = param(1e-3, "beta up to which a high KL alone is accepted", minimum=0)

    def setup(self) -> None:
        """Start with empty windows."""
        self.newest: deque[tuple[int, float]] = deque(maxlen=self.rows)
        self.calm = Window(20)  # with more rows, a fast learner's rise from 0 would look like a jump
        self.calm_rows = self.rows
        self.generation = GenerationRows()
        self.first: dict[int, float] = {}  # KL of the first steps; not used if an attempt begins later
        self.fit = BetaFit()

    def early_sign(self, run: RunView) -> Reading | None:
        """A KL that no useful policy reaches."""
        kl = run.newest("kl_reference")
        if kl is None or abs(kl) < RUNAWAY:
            return None
        return Reading(Verdict.BREACH, message=f"KL to the reference is {kl:.3g}", evidence={"kl_reference": kl})

    def observe(self, record: MetricRow, run: RunView) -> Iterable[Reading]:
        """Judge one train row that carries KL."""
        kl = number(record, "kl_reference")
        if kl is None:
            return SILENT
        kl = abs(kl)
        if record.step <= FIRST_STEPS:
            self.first[record.step] = kl
        continues = (
            record.step == FIRST_STEPS and bool(run.setting("adapter")) and run.number("beta") not in {None, 0.0}
        )
        if continues and self._elsewhere():
            return (another_reference(kl), *self._row(record, kl, run))
        before = record.step == 1 and kl >= OFFSET and run.framework in BEFORE_UPDATE and not run.setting("adapter")
        said = self._row(record, kl, run)
        return (before_any_update(kl), *said) if before else said

    def _row(self, record: MetricRow, kl: float, run: RunView) -> Iterable[Reading]:
        if not self.generation.begins(record) and self.newest:
            self.newest.pop()
        self.newest.append((record.step, kl))
        bar = self._bar()
        self.calm_rows = self.calm_rows + 1 if kl < bar else 0
        low = min(self.level, self.jump_floor) * (1.0 - 1e-9)
        self.fit.push(number(record, "loss") if kl > low else None, kl)
        if self.calm_rows >= self.rows:
            self.calm.push(kl)
            return QUIET
        middle = sorted(value for _, value in self.newest)[len(self.newest) // 2]
        if len(self.newest) == self.rows and middle >= bar:
            return self._judge(middle, bar, run)
        spike = kl >= self.limit and len(self.calm) >= self.rows
        return (one_row(kl, self.limit),) if spike else QUIET

    def _elsewhere(self) -> bool:
        """Whether KL was high and steady before training could have changed the policy."""
        first = self.first.values()
        return len(first) >= FIRST_STEPS and OFFSET <= min(first) >= max(first) / STEADY

    def _bar(self) -> float:
        """The KL above which a row is not calm."""
        usual = self.calm.median() if self.calm.full else None
        return self.level if usual is None else min(self.level, max(self.jump_floor, self.jump * usual))

    def _judge(self, kl: float, bar: float, run: RunView) -> Iterable[Reading]:
        gaining, well = run.trend.reward.gained(), run.trend.reward_does_well()
        agreeing = run.trend.signs() & (WHILE_GAINING if well else AGREEING)
        if kl < self.limit and not agreeing and (gaining or self.fit.at_most(self.tiny_beta, run.number("beta"))):
            return QUIET
        elsewhere = self._elsewhere()
        runaway = kl >= RUNAWAY and not gaining
        grave = runaway or (not elsewhere and bool(agreeing & {TrendSign.REWARD_FELL} if well else agreeing))
        first = next(step for step, value in self.newest if value >= bar)
        usual = f"usual in this run: below {bar:.2g}" if len(self.calm) else f"above {bar:.2g} from the first row on"
        also = f"; {named(agreeing)}" if agreeing else ""
        also += "; the reference is not the model that training started from" if elsewhere else ""
        return breach(
            value=kl,
            threshold=bar,
            severity=Severity.CRITICAL if grave else Severity.WARNING,
            message=f"KL to the reference is {kl:.3g} ({usual}){also}",
            evidence={"kl_reference": shown(kl), "rows": self.rows, "reward_mean": shown(run.trend.reward.mean)},
            first_step=first,
        )
