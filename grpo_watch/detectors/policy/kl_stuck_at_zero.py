"""KL stays exactly zero although groups have a learning signal."""

from __future__ import annotations

from collections.abc import Iterable

from grpo_watch.detectors.shared.generations import steps_off_policy, update_is_zero
from grpo_watch.detectors.shared.likely_causes import NO_MOVEMENT
from grpo_watch.engine.detector import QUIET, SILENT, Detector, NotApplicable, NotYet, RunView, breach, no_data, param
from grpo_watch.engine.evidence import SameNumber, ZeroStreak, is_zero, number
from grpo_watch.engine.learning import ARITHMETIC_FLOOR, RARE
from grpo_watch.engine.records import MetricRow, Reading, Severity, Verdict
from grpo_watch.engine.traits import WasteKind

ONLY_UPDATE = (
    "kl_reference is not logged; without it this needs several optimizer steps per generation "
    "(num_iterations above 1); save checkpoints instead (save_steps)"
)
"""Why a run is blind that logs only the KL between new and old policy, which is 0 by design on-policy."""

ADAPTER_OPEN = (
    ", for too long if all weights are trained; an adapter may need longer at this learning rate, and this log does "
    "not show which is trained: set it with --set adapter=true or adapter=false"
)
"""Ends the message where it is unknown what is trained: the zero is a fault only if all weights are."""
FOLLOWS = ", and the reward rose, so the policy moves: the reference is the policy itself, or follows it"
OWN_COPY = (
    "Give the reference its own copy of the weights (or disable the adapter for it), and check sync_ref_model. Until "
    "then the KL penalty has no effect; the next two checkpoints show whether the weights change."
)


def ask_for_beta(framework: str | None) -> str:
    """Why a zero KL is not judged while beta is unknown.

    ``framework`` is None for tables that a user describes (``grpo-watch``).
    """
    if framework in {None, "grpo-watch"}:
        why = "this file does not show whether beta is 0"
    else:
        why = f"{framework} logs it even when beta is 0"
    return f"KL is exactly 0; {why}: set it with --set beta=… to have this judged"


HARDLY, MOVED = 100.0, 1e-2
"""Factor below a healthy run's least KL at which the policy hardly moves, and a KL that shows movement in any case:
beta holds a policy back only once it has moved."""


def hardly_moves(run: RunView, kl: float) -> tuple[Reading, ...]:
    """Judge a KL above 0 against the least that the summed learning rate gives (an adapter's where unknown)."""
    adapter = run.setting("adapter") is not False
    least = min(run.learning.expected_kl(adapter=adapter), MOVED)
    if abs(kl) * HARDLY >= least:
        return QUIET
    total = float(f"{run.learning.total:.4g}")
    return breach(
        value=kl,
        threshold=least / HARDLY,
        severity=Severity.WARNING,
        message=f"KL to the reference is {kl:.2g} although the learning rates sum to {total:g}: a policy that "
        f"learns is at {least:.2g} at least, so next to nothing of the gradients reaches the weights",
        evidence={"kl_reference": kl, "least_expected": float(f"{least:.3g}"), "summed_learning_rate": total},
        hint="Compare max_grad_norm with grad_norm (a clip below 1e-6 is lost in Adam's epsilon), and check the "
        "optimizer's epsilon, its parameter groups and their learning rates, and fp32 master weights.",
    )


SAME_ROWS = 10
"""Rows with an identical KL above 0."""
CAPPED = 5.0
"""From this KL on, a constant may be the limit of a clamp (ms-swift caps tokens at 10)."""
PLACEHOLDER = (
    "Look for a branch that skips the update (missing advantages or log-probabilities, a generation that fails and "
    "falls back), and log what is measured."
)


def one_kl(row: MetricRow, kl: float, same: SameNumber) -> tuple[Reading, ...]:
    """Judge a KL above 0 that is identical on all rows: a warning unless loss, gradient or rate is exactly 0."""
    if same.count(kl, row.step, row.resolution) < SAME_ROWS or abs(kl) >= CAPPED:
        return ()
    dead = [name for name in ("loss", "grad_norm", "learning_rate") if row.values.get(name) == 0.0]
    return breach(
        value=kl,
        severity=None if dead else Severity.WARNING,
        message=f"KL to the reference is exactly {kl:.7g} on {same.rows} rows in a row: neither the policy nor its "
        "batches change, or the number is a placeholder" + (f"; {dead[0]} is 0" if dead else ""),
        evidence={"kl_reference": kl, "rows": same.rows, **dict.fromkeys(dead, 0.0)},
        hint=PLACEHOLDER,
        first_step=same.since,
    )


MEASURED, CLEARLY = 3, 10.0
"""Rows in a row, and multiple of the log's resolution, that prove that the KL is computed."""
PAIR, LOST_ROWS = 2, 20
"""Zeros needed after that: where groups are known to differ, and where only the mean reward is known to vary."""


class KlShown:
    """Tracks whether the KL was ever clearly above 0 (``measured``) and has been 0 since (``gone``)."""

    def __init__(self) -> None:
        self._zeros, self._above = ZeroStreak(), 0

    @property
    def measured(self) -> bool:
        """Whether the KL was once far above arithmetic noise and the log's rounding, on several rows in a row."""
        return self._above == MEASURED

    def add(self, row: MetricRow, kl: float, run: RunView, *, zero: bool) -> None:
        """Take the KL of a row."""
        self._zeros.add(row.step, zero=zero)
        if not self.measured:
            least = max(run.learning.floor, CLEARLY * (run.learning.resolution(row) or 0.0))
            self._above = self._above + 1 if abs(kl) > least else 0

    def gone(self, row: MetricRow, run: RunView) -> bool:
        """Whether a measured KL has been 0 for longer than ever before; zeros of skipped batches don't count."""
        known = run.learning.signal is not None
        skipped = not known and 0.0 in (row.values.get("loss"), row.values.get("grad_norm"))
        return self.measured and not skipped and self._zeros.outlasts(PAIR if known else LOST_ROWS)


def no_signal(run: RunView, least: float, *, lost: bool) -> str | None:
    """Why no signal is known; for a KL that was ``lost``, rewards that vary are signal enough."""
    signal = run.learning.signal
    if signal is None and not (lost and run.trend.reward.varies):
        return NotYet("whether rewards differ inside groups is not known yet")
    if run.masked.whole or run.masked.chance > RARE:
        return "all completions are truncated and left out of the loss, so no token has a KL"
    if signal is not None and signal < least:
        return NotApplicable("no group has differing rewards, so nothing is learned and KL 0 is expected")
    return None


class KlStuckAtZero(Detector):
    """A zero counts once a healthy KL would exceed the log's resolution (``engine/learning.py``)."""

    explained_by = (
        "reference-follows-policy",
        "learning-rate-zero",
        "gradient-lost",
        "adapter-never-trained",
        "parameters-unchanged",
        "reward-variance-collapse",
    )
    withdrawn_by = "reference-follows-policy"
    wastes = WasteKind.STEPS
    shows_frozen_policy = True
    likely_causes = NO_MOVEMENT
    dashboards = ("grpo-sampling-weights",)

    reads = (MetricRow,)
    needs = (
        ("kl_reference", "learning_rate"),
        ("kl_policy_update", "learning_rate"),
    )
    min_cumulative_lr: float = param(1e-7, "summed learning rate (with a signal) before a zero counts", minimum=0)
    min_cumulative_lr_adapter: float = param(1e-6, "the same, if an adapter is trained", minimum=0)
    min_signal: float = param(0.05, "least share of groups with differing rewards", minimum=0, maximum=1)

    def setup(self) -> None:
        """Start with no KL."""
        self.same, self.shown = SameNumber(), KlShown()

    def blind_because(self, run: RunView) -> str | None:
        """Blind without a reference, or if the reference is synced on purpose."""
        if steps_off_policy(run) and run.seen("kl_policy_update"):
            return None
        if run.number("beta") == 0:
            return NotApplicable(
                "beta is 0, so there is no reference model and no KL; save checkpoints instead (save_steps)"
            )
        if run.setting("sync_ref_model"):
            return NotApplicable("the reference is synced to the policy on purpose (sync_ref_model)")
        return ONLY_UPDATE if run.seen("kl_policy_update") and not run.seen("kl_reference") else None

    def observe(self, record: MetricRow, run: RunView) -> Iterable[Reading]:
        """Judge one train row."""
        kl = number(record, "kl_reference")
        if kl is None or ("kl_policy_update" in record.values and run.number("beta") == 0):
            return self._update(record, run)
        zero = is_zero(kl, record.resolution)
        self.shown.add(record, kl, run, zero=zero)
        if not zero and ((said := one_kl(record, kl, self.same)) or (said := hardly_moves(run, kl)) is QUIET):
            return said
        why_not = self.blind_because(run) or self._not_evidence(record, run)
        if not zero:
            return QUIET if why_not else said
        return no_data(why_not) if why_not else (self._breach(record, run, kl),)

    def _update(self, row: MetricRow, run: RunView) -> Iterable[Reading]:
        """Without a reference, judge the KL between new and old policy, if one generation feeds several steps."""
        if "kl_policy_update" not in row.values or not steps_off_policy(run):
            return SILENT
        if not update_is_zero(row):
            return QUIET
        why_not = self._not_evidence(row, run, ARITHMETIC_FLOOR)  # verl's ppo_kl is the mean of d itself, not of d^2
        message = "policy-update KL and clip share are exactly 0 although one generation feeds several optimizer steps"
        evidence = {"kl_policy_update": 0.0, "policy_clip_ratio": number(row, "policy_clip_ratio")}
        return no_data(why_not) if why_not else breach(message=message, evidence=evidence)

    def _not_evidence(self, row: MetricRow, run: RunView, floor: float | None = None) -> str | None:
        """Why a zero in this row proves nothing; None if it counts."""
        lost = floor is None and self.shown.gone(row, run)
        if not (lost or run.learning.rate_known):
            return "no learning rate is logged, so a zero KL may be a warm-up"
        why_not = no_signal(run, self.min_signal, lost=lost)
        return why_not or (self._too_early(row, run, floor) if run.learning.rate_known else None)

    def _too_early(self, row: MetricRow, run: RunView, floor: float | None) -> str | None:
        learning, adapter = run.learning, bool(run.setting("adapter"))
        least = self.min_cumulative_lr_adapter if adapter else self.min_cumulative_lr
        if learning.total < least or not learning.kl_would_show(row, adapter=adapter, floor=floor):
            return NotApplicable("the learning rate summed so far is too small for a KL that this log could show")
        return None

    def _breach(self, row: MetricRow, run: RunView, kl: float) -> Reading:
        measured = self.shown.measured
        learns = run.trend.reward.gained() and not measured  # a gain may be from before the KL was lost
        beta_open = not (measured or run.known("beta") or run.setting("kl_implies_beta") is True)
        adapter_open = not (measured or run.known("adapter") or run.learning.kl_would_show(row, adapter=True))
        signal = run.learning.signal
        shown = "the mean reward varies" if signal is None else f"{signal:.0%} of the groups have differing rewards"
        message = f"KL to the reference is exactly 0 although {shown}"
        unsure = adapter_open or learns or signal is None
        return Reading(
            Verdict.BREACH,
            value=kl,
            severity=Severity.INFO if beta_open else Severity.WARNING if unsure else None,
            message=ask_for_beta(run.framework)
            if beta_open
            else message + (FOLLOWS if learns else ADAPTER_OPEN if adapter_open else ""),
            hint=OWN_COPY if learns and not beta_open else "",
            evidence={
                "kl_reference": kl,
                "reward_zero_std_ratio": None if signal is None else round(1.0 - signal, 6),
                "summed_learning_rate": float(f"{run.learning.total:.4g}"),
                "grad_norm": number(row, "grad_norm"),
            },
        )
