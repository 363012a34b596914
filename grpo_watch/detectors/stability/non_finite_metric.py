"""A core metric is NaN or infinite."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from grpo_watch import lazy_re as re
from grpo_watch.detectors.shared.likely_causes import RATES
from grpo_watch.detectors.shared.listed import listed
from grpo_watch.engine.detector import QUIET, SILENT, Detector, RunView
from grpo_watch.engine.records import EventKind, MetricRow, Reading, RunEvent, Scalar, Severity, Verdict
from grpo_watch.engine.traits import ON, LikelyCause, WasteKind

CORE = ("loss", "grad_norm", "kl_reference", "entropy", "reward_mean", "policy_clip_ratio", "kl_policy_update")
"""Metrics that must be finite in every step. ``reward-not-finite`` judges single reward functions, which multi-task
rewards leave NaN on purpose (ms-swift#4653). A key logged as null was NaN: TRL >= 1.0 and verl's file logger write it
so; rows without the metric lack the key. An own loop also writes null for a metric that it did not measure."""

OF_WEIGHTS = ("loss", "grad_norm", "kl_reference", "entropy")
"""Metrics that can't be finite once the weights hold a NaN; a reward still can."""

MEANS = frozenset({"kl_reference", "entropy", "policy_clip_ratio", "kl_policy_update"})
"""Means over the tokens of the loss. If truncated completions are masked and a micro-batch holds no others, TRL before
0.20 divides 0 by 0 here. A real NaN also breaks the gradient, and the next generation crashes."""

SEARCH = 16
"""Most rows that the search for fp16's loss scale takes: it starts at 65,536 and halves with each skipped step."""

REWARD_HINT = (
    "Only the reward is broken: a reward function returns NaN, None or infinity. Return a finite float for every "
    "completion (guard divisions, give the lowest score where an answer can't be parsed)."
)


HALF = LikelyCause("fp16 is on, and overflows: use bf16.", {"fp16": ON})
ALL_MASKED = LikelyCause(
    "Truncated completions are excluded from the loss, so a rank with nothing else averages over nothing.",
    {"mask_truncated_completions": ON},
)
NOT_TRAINING = re.compile(
    r"reward|score|eval|(?:^|[/_])val[-_/]|std|var|min|max|length|tokens|tim(?:e|ing)|perf|acc|ratio|logits"
    r"|(?:^|[^a-z])(?:share|frac(?:tion)?|contribution|coverage)(?:$|[^a-z])",
    re.IGNORECASE,
)
"""Keys whose NaN may be intended: functions without a score on a row, spreads of one value, means over nothing, shares
of nothing (an own part of the loss that is off: NaN on 2,448 rows of a public run that learned; matched as whole words,
since ``shared_expert_loss`` is a loss), and means of logits, where a padded vocabulary holds infinities."""
OVERFLOW = 1.8e19
"""A core metric this large is as good as infinite: its square overflows float32, as the norm of its gradient does. One
token with a log-ratio above 44 gives such a KL (k3). A public run survived single rows of 2e14."""


def other_nans(record: MetricRow, *, masked: bool) -> dict[str, float | None]:
    """NaN of training scalars that are no canonical metric, such as a PPO critic's loss, by key.

    ``masked``: means over the tokens of the loss are NaN if no completion is left in it.
    """
    named = [] if masked else [key for key, value in record.raw.items() if value != value]  # noqa: PLR0124 (NaN)
    return {key: math.nan for key in named if NOT_TRAINING.search(key) is None}


class NonFiniteMetric(Detector):
    """One row is a warning; two in a row, or a crash right after, are critical. Steps that fp16 skips are an info."""

    wastes = WasteKind.STEPS
    holds_under_any_name = True
    begins_when_seen = True
    likely_causes = (HALF, ALL_MASKED, *RATES)

    reads = (MetricRow, RunEvent)
    needs = tuple((name,) for name in CORE)

    def setup(self) -> None:
        """Start with no streak."""
        self.streak: dict[str, int] = {}
        self.gaps: set[str] = set()
        self.last: dict[str, float | None] = {}
        self.first_step = 0
        self.searching = True

    def observe(self, record: MetricRow | RunEvent, run: RunView) -> Iterable[Reading]:
        """Judge a train row, or a crash that follows one."""
        if isinstance(record, RunEvent):
            if record.kind is EventKind.TRACEBACK and self.streak:
                return (self._breach(Severity.CRITICAL, "the job crashed right after"),)
            return SILENT
        values = record.values
        if self.streak:
            self.gaps |= {name for name, value in self.last.items() if value is None and values.get(name) is not None}
        logged = {
            name: values[name]
            for name in CORE
            if name in values and (values[name] is not None or not self._unmeasured(name, values, run))
        }
        broken = {name: value for name, value in logged.items() if value is None or not abs(value) <= OVERFLOW}
        if record.step == 0:  # before any update, null means not measured
            broken = {name: value for name, value in broken.items() if value is not None}
        if broken.keys() <= MEANS and run.masked.left_out:
            broken = {}
        broken = broken or other_nans(record, masked=run.masked.left_out)
        self.searching = self.searching and ("grad_norm" not in values or "grad_norm" in broken)
        if not (broken or self.streak):
            return QUIET if logged else SILENT
        if not self.streak:
            self.first_step = record.step
        kept = {name: rows for name, rows in self.streak.items() if name not in values and name not in record.raw}
        self.streak = kept | {name: self.streak.get(name, 0) + 1 for name in broken}
        if not broken:
            return SILENT if self.streak else QUIET
        self.last = broken
        persists = max(self.streak.values()) > 1
        how = "on consecutive rows" if persists else "on one row"
        return (self._breach(self._severity(run, persists=persists), how),)

    def _unmeasured(self, name: str, values: Mapping[str, float | None], run: RunView) -> bool:
        """Whether an own loop's null is a gap: the same row shows sound weights, or a number followed such a null."""
        shown = (values.get(key) for key in OF_WEIGHTS)
        sound = any(value is not None and math.isfinite(value) for value in shown)
        return run.framework is None and name != "reward_mean" and (sound or name in self.gaps)

    def early_sign(self, run: RunView) -> Reading | None:
        """The first metric of any kind that is not finite."""
        values = ((name, value) for name, value in run.values.items() if value is not None)
        name, value = next(((name, value) for name, value in values if not math.isfinite(value)), ("", 0.0))
        text = f"{name} is {value}"
        return Reading(Verdict.BREACH, message=text, evidence={name: str(value)}) if name else None

    def _severity(self, run: RunView, *, persists: bool) -> Severity:
        scaled = run.setting("fp16") is True or str(run.setting("dtype")) in ("float16", "fp16", "torch.float16")
        skipped = not persists or (self.searching and max(self.streak.values()) <= SEARCH)
        if scaled and skipped and set(self.last) == {"grad_norm"}:
            return Severity.INFO
        return Severity.CRITICAL if persists else Severity.WARNING

    def _breach(self, severity: Severity, how: str) -> Reading:
        said = {name: "null" if value is None else str(value) for name, value in sorted(self.last.items())}
        evidence: dict[str, Scalar] = {**said, "rows": max(self.streak.values())}
        names = listed(f"{name} is {value}" for name, value in said.items())
        return Reading(
            Verdict.BREACH,
            severity=severity,
            message=f"{names} ({how})",
            evidence=evidence,
            hint=REWARD_HINT if set(self.last) == {"reward_mean"} else "",
            first_step=self.first_step,
            immediate=True,
        )
