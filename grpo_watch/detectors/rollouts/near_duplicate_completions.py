"""Completions of one prompt differ by a few words, or begin alike in a pattern: the group explores one answer."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from statistics import fmean
from types import MappingProxyType

from grpo_watch.detectors.rollouts.example_text import shown
from grpo_watch.detectors.rollouts.group_signal import GroupSignal, barren_scores, earned_by
from grpo_watch.detectors.rollouts.sampling_causes import NEAR_COPIES
from grpo_watch.detectors.rollouts.shared_prefixes import SEED_HINT, shared_openings
from grpo_watch.detectors.shared.advantages import contradicted
from grpo_watch.detectors.shared.new_batches import NewBatches
from grpo_watch.engine.detector import QUIET, SILENT, Detector, NotYet, Param, RunView, no_data
from grpo_watch.engine.records import CompletionSummary, GroupSummary, Reading, Scalar, Severity, Verdict
from grpo_watch.engine.window import Window


def different(group: GroupSummary) -> int:
    """Different texts of a group, near copies being one."""
    return group.unique if group.near_unique is None else group.near_unique


def near_evidence(groups: Sequence[GroupSummary]) -> dict[str, Scalar]:
    """How far the texts of a batch differ, and one of them."""
    known = [group.distinct for group in groups if group.distinct is not None]
    return {
        "different_texts": sum(map(different, groups)),
        "completions": sum(group.size for group in groups),
        "distinct_openings": sum(len(set(group.openings)) for group in groups),
        "distinct_3": round(fmean(known), 4) if known else None,
        **shown(groups),
    }


OPENINGS = "openings"
"""Key of the alert about shared openings; the alert about near copies has none."""
GROUPS = 64
"""Number of newest groups whose openings are compared."""
HARMLESS_HINT = (
    "Often caused by the task: edits of one text, or a fixed form around a few words. Investigate if the entropy "
    "falls or rewards inside the groups become equal."
)


class NearDuplicateCompletions(Detector):
    """Averages the share of near copies; groups with only exact copies belong to ``duplicate-completions``."""

    explained_by = ("non-finite-metric", "duplicate-completions", "entropy-collapse")
    likely_causes = NEAR_COPIES
    dashboards = ("grpo-sampling-weights",)

    reads = (CompletionSummary,)
    needs = (("completions",),)
    params = MappingProxyType(
        {
            "repeated": Param(0.5, "share of completions that copy another of their group, nearly or exactly", 0, 1),
            "nearly": Param(0.25, "share that must be near but not exact copies", 0, 1),
            "batches": Param(5, "distinct batches averaged", minimum=2),
            "signal": Param(0.5, "share of unsolved groups with differing rewards from which it is info …", 0, 1),
            "fallen_entropy": Param(0.5, "… unless the entropy fell to this share of its start", 0, 1),
        }
    )
    repeated: float
    nearly: float
    batches: int
    signal: float
    fallen_entropy: float

    def setup(self) -> None:
        """Empty windows."""
        self.new = NewBatches()
        self.all, self.near, self.group_signal = Window(self.batches), Window(self.batches), GroupSignal(self.batches)
        self.newest: deque[GroupSummary] = deque(maxlen=GROUPS)

    def observe(self, record: CompletionSummary, run: RunView) -> Iterable[Reading]:
        """Judge one batch together with those before it."""
        groups = run.functions.weighed(self.new.take(record))
        return (*self._near(groups, run), *self._openings(groups))

    def _openings(self, groups: tuple[GroupSummary, ...]) -> Iterable[Reading]:
        self.newest.extend(group for group in groups if group.openings)
        if not any(group.openings for group in groups):
            return SILENT
        found = shared_openings(self.newest)
        if found is None:
            return (Reading(Verdict.OK, OPENINGS),)
        message = f"{found.says()}: ranks or engines share a seed and their texts diverge late"
        return (
            Reading(
                Verdict.BREACH, OPENINGS, found.together, message=message, evidence=found.evidence(), hint=SEED_HINT
            ),
        )

    def _near(self, groups: tuple[GroupSummary, ...], run: RunView) -> Iterable[Reading]:
        compared = [
            group for group in groups if group.near_unique is not None and group.prompts == 1 and group.size > 1
        ]
        if not compared:
            return no_data("the texts were not compared") if groups else SILENT
        size = sum(group.size for group in compared)
        self.all.push(sum(group.size - different(group) for group in compared) / size)
        self.near.push(sum(group.unique - different(group) for group in compared) / size)
        self.group_signal.take(earned_by(compared), doubtful=contradicted(compared), scores=barren_scores(compared))
        if not self.all.full:
            return no_data(NotYet("too few batches yet"))
        repeated, nearly = self.all.mean() or 0.0, self.near.mean() or 0.0
        if repeated < self.repeated or nearly < self.nearly:
            return QUIET
        harmless = self._harmless(run)
        but = ", while rewards inside the groups differ and the entropy has not fallen" if harmless else ""
        return (
            Reading(
                Verdict.BREACH,
                value=repeated,
                threshold=self.repeated,
                message=f"{repeated:.0%} of the completions differ from another in their group by a few words{but}",
                severity=Severity.INFO if harmless else None,
                hint=HARMLESS_HINT if harmless else "",
                evidence={
                    "repeated_ratio": round(repeated, 4),
                    "near_ratio": round(nearly, 4),
                    "groups_with_signal": self.group_signal.share,
                    **near_evidence(compared),
                },
            ),
        )

    def _harmless(self, run: RunView) -> bool:
        """Whether the groups still teach and the entropy, if logged, has not fallen."""
        entropy = run.trend.entropy
        return (self.group_signal.share or 0.0) >= self.signal and entropy.ratio(entropy.start) > self.fallen_entropy
