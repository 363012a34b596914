"""Rewards are equal within almost every group: advantages are 0 and nothing is learned."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from types import MappingProxyType

from grpo_watch.detectors.reward.zero_std import (
    CONSTANT,
    COPIES,
    FLOOR_ROWS,
    FLOOR_SHARE,
    HIGHEST,
    LEFT_OUT,
    NEVER_SCORED,
    SOLVED,
    UNSOLVED,
    DeadRowWindow,
    EqualButForRounding,
    RowsAtZero,
    SpreadOfBatches,
    ZeroStdCause,
    why,
)
from grpo_watch.detectors.shared.generations import BatchesPerRow
from grpo_watch.detectors.shared.likely_causes import NARROW
from grpo_watch.engine.detector import QUIET, SILENT, Detector, NotYet, RunView, no_data, param
from grpo_watch.engine.evidence import FLOAT_NOISE, NO_SPREAD, no_signal_ratio, number
from grpo_watch.engine.records import CompletionSummary, MetricRow, Reading, Scalar, Severity, Tick, Verdict
from grpo_watch.engine.traits import LikelyCause, WasteKind
from grpo_watch.engine.trend import TrendSign, named
from grpo_watch.engine.window import Window

AGREES = frozenset(
    {TrendSign.REWARD_FELL, TrendSign.CUT_OFF, TrendSign.TEXTS_REPEAT, TrendSign.ENTROPY_FELL, TrendSign.LENGTH_FELL}
)
"""Second signs that the groups are not merely solved."""
REPEATED = 0.5
"""Share of copies inside groups from which copies explain the equal rewards."""
ONLY_AS = MappingProxyType(
    {
        "dead-reward-component": (CONSTANT.kind, NEVER_SCORED.kind),
        "completions-truncated": tuple(cause.kind for cause in UNSOLVED),
    }
)
"""The kinds that these findings explain: a constant component only constant rewards, cut completions no maximum."""
SMALL_GROUPS = LikelyCause(
    "Groups of {num_generations}: few samples are often all right or all wrong; 8 or more give a signal.",
    bounds={"num_generations": (2, 4)},
)


def _no_update(row: MetricRow) -> bool:
    """Whether nothing was learned from the row: a gradient of exactly 0 or, if none is logged, a loss of 0."""
    return number(row, "grad_norm" if "grad_norm" in row.values else "loss") == 0.0


def of_mean_alone(rows: RowsAtZero, row: MetricRow, *, spread: bool) -> Reading | None:
    """A breach where rows have only the mean reward; ``spread``: the batch's was above 0.

    It needs nearly all rows at 0; or, since other texts would move the mean, one constant mean or 1 on nearly all rows.
    """
    zeros, value, cause = rows.add_row(row), 0.0, NEVER_SCORED
    evidence: dict[str, Scalar] = {"rows_at_zero": zeros, "rows": FLOOR_ROWS}
    message = f"no completion scored above 0 on {zeros} of the last {FLOOR_ROWS} rows: nothing is learned from them"
    if not zeros:
        if spread or not (rows.full or rows.same >= FLOOR_ROWS):
            return None
        cause = HIGHEST if rows.full or abs(rows.value - SOLVED) <= FLOAT_NOISE else CONSTANT
        value, evidence = SOLVED if rows.full else rows.value, {"rows": rows.full or rows.same}
        message = f"the mean reward is exactly {value:g} on {rows.same} rows in a row: {cause.says}"
        if rows.full:
            message = f"the mean reward is exactly 1 on {rows.full} of the last {FLOOR_ROWS} rows: {cause.says}"
    return Reading(
        Verdict.BREACH,
        value=zeros / FLOOR_ROWS if zeros else 1.0,
        threshold=FLOOR_SHARE,
        message=message,
        evidence={"reward_mean": value, **evidence, "kind": cause.kind},
        hint=cause.hint,
        first_step=rows.steps[0],
    )


def never_learned(silent: DeadRowWindow, reason: ZeroStdCause, *, unsolved: bool, share: float) -> bool:
    """Whether a second sign agrees that a run never learned: no update, or scores that the total leaves out.

    A constant reward above 0 may come from prompts that were solved before, whatever its scale (``unsolved``).
    """
    return silent.never_alive if reason is LEFT_OUT else unsolved and silent.never_updated(share)


class RewardVarianceCollapse(Detector):
    """Averages the zero-std ratio over generation rows, and names the likely reason."""

    explained_by = (
        "non-finite-metric",
        "dead-reward-component",
        "duplicate-completions",
        "completions-truncated",
        "empty-completions",
        "gibberish-completions",
        "entropy-collapse",
        "entropy-explosion",
        "reward-collapse",
        "near-duplicate-completions",
    )
    explained_only_as = ONLY_AS
    wastes = WasteKind.STEPS
    likely_causes = (NARROW, SMALL_GROUPS)

    reads = (MetricRow, CompletionSummary, Tick)
    needs = (("reward_zero_std_ratio",), ("reward_group_std",), ("advantage_max", "advantage_min"), ("completions",))
    share: float = param(0.9, "mean share of groups without spread that fires", 0, 1)
    rows: int = param(10, "generation rows averaged; four that cover as many generations suffice", minimum=3)
    dead_rows: int = param(5, "rows without spread that fire; three that cover `rows` generations do too", minimum=3)

    def setup(self) -> None:
        """Start with empty windows."""
        self.silent, self.rewards = DeadRowWindow(self.rows, self.dead_rows), Window(self.rows)
        self.batches, self.per_row, self.equal = SpreadOfBatches(), BatchesPerRow(), EqualButForRounding(self.dead_rows)
        self.at_zero, self.never_scored = RowsAtZero(), False
        self.lowest, self.highest, self.spread = float("inf"), float("-inf"), False

    def observe(self, record: MetricRow | CompletionSummary | Tick, run: RunView) -> Iterable[Reading]:
        """Judge one train row that tells about groups, or dumped batches while no row does."""
        said, more = self._observed(record, run), self.equal.readings(record, run)
        return (*said, *more) if more else said

    def _observed(self, record: MetricRow | CompletionSummary | Tick, run: RunView) -> Iterable[Reading]:
        if isinstance(record, MetricRow):
            ratio = self._share(record, run)
            self.per_row.add_row(record, tells=ratio is not None)
            if ratio is not None:
                self.silent.alive |= self.spread
                return self._judge(record, ratio, run)
            known = run.trend.silent.first is not None
            if not known and (reading := of_mean_alone(self.at_zero, record, spread=self.spread)) is not None:
                self.never_scored = True
                return (reading,)
            if self.never_scored:
                return QUIET
        if run.trend.silent.first is not None or (isinstance(record, MetricRow) and not self.batches.any_waits):
            return SILENT
        rows = [(row, no_signal_ratio(row) or 0.0) for row in self.batches.ready_rows(record, run)]
        readings = [replace(said, step=row.step) for row, ratio in rows for said in self._judge(row, ratio, run)]
        if not self.silent.shares and isinstance(record, CompletionSummary):
            return no_data(NotYet("neither metrics nor dumps show the rewards inside groups so far"))
        return readings

    def _share(self, row: MetricRow, run: RunView) -> float | None:
        """Share (0…1) of the row's groups whose rewards are all equal; None if the row can't tell.

        If rows have only the batch's spread, those without any count as dead. Rows with some then count as alive,
        though some of their groups may be dead: otherwise chance among few prompts would look like a collapse (TRL
        1.16.0, a sparse reward, 34 of 100 batches without spread).
        """
        ratio = run.silent
        if ratio is not None or (number(row, "reward_batch_std") or 0.0) < FLOAT_NOISE:
            return ratio
        self.spread = True  # some rows had a spread of the batch, but none of their groups
        return None if run.trend.silent.first is None else 0.0

    def _judge(self, record: MetricRow, ratio: float, run: RunView) -> Iterable[Reading]:
        silent = self.silent
        silent.add_share(ratio, record.step, self.per_row.count(run), still=ratio >= 1.0 and _no_update(record))
        if (reward := number(record, "reward_mean")) is not None:
            self.rewards.push(reward)
            self.lowest, self.highest = min(self.lowest, reward), max(self.highest, reward)
        mostly = silent.enough and silent.shares.total >= self.share * len(silent.shares.values) - 1e-9
        if silent.all_dead or (mostly and not silent.by_chance(run.trend.silent)):
            return (self._breach(record, reward, silent.dead_since if silent.all_dead else None, run),)
        silent.usual = silent.usual if mostly else None
        return QUIET if silent.some else no_data(NotYet("too few generation rows yet"))

    def early_sign(self, run: RunView) -> Reading | None:
        """No group of the newest row has any spread."""
        ratio = run.silent
        if ratio is None and self.at_zero.only_zeros:
            return Reading(Verdict.BREACH, message="no completion scored above 0", evidence={"reward_mean": 0.0})
        if ratio is None or ratio < NO_SPREAD:
            return None
        text = "no group has any spread of rewards: nothing to learn from"
        return Reading(Verdict.BREACH, message=text, evidence={"reward_zero_std_ratio": ratio})

    def _breach(self, row: MetricRow, reward: float | None, since: int | None, run: RunView) -> Reading:
        mean = self.silent.shares.mean() or 0.0
        repeated = (run.trend.repeated.mean or 0.0) >= REPEATED
        dead, rewards = mean >= 1.0 - FLOAT_NOISE, tuple(self.rewards.values)
        reason = COPIES if repeated else why(row, rewards, self.lowest, self.highest, dead=dead)
        learned = reason is HIGHEST or run.trend.reward.gained()
        agrees = frozenset() if learned else run.trend.signs() & AGREES
        unsolved = reward is not None and self.highest <= FLOAT_NOISE
        untrained = not learned and never_learned(self.silent, reason, unsolved=unsolved, share=self.share)
        return Reading(
            Verdict.BREACH,
            value=mean,
            threshold=self.share,
            severity=Severity.CRITICAL if agrees or untrained else None,
            message=f"{mean:.0%} of the groups have no reward spread: {reason.says}"
            + (f"; {named(agrees)}" if agrees else ""),
            hint=reason.hint,
            evidence={
                "reward_zero_std_ratio": round(mean, 6),
                "rows": len(self.silent.shares),
                "reward_mean": reward,
                "kind": reason.kind,
            },
            first_step=since,
        )
