"""Completions of one prompt that differ by a few words, or that begin alike in a pattern."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import fmean

from grpo_watch.detectors.rollouts.copies import GroupSignal, earned_by, shown
from grpo_watch.detectors.rollouts.copy_history import CopyPlaces
from grpo_watch.detectors.shared.likely_causes import NEAR_COPIES
from grpo_watch.engine.detector import QUIET, SILENT, Detector, NotYet, RunView, breach, no_data, param
from grpo_watch.engine.records import CompletionSummary, GroupSummary, Reading, Scalar, Severity, Verdict
from grpo_watch.engine.reward_functions import contradicted
from grpo_watch.engine.window import Window

SEED_HINT = (
    "Give every rank and engine its own seed (seed + data-parallel rank) and set no per-request seed; then compare how "
    "the completions of one group begin."
)


def different(group: GroupSummary) -> int:
    """Different texts of a group, with near copies counted as one."""
    return group.unique if group.near_unique is None else group.near_unique


def near_evidence(groups: Sequence[GroupSummary]) -> dict[str, Scalar]:
    """How many texts of a batch differ, and an excerpt, as evidence."""
    known = [group.distinct for group in groups if group.distinct is not None]
    return {
        "different_texts": sum(map(different, groups)),
        "completions": sum(group.size for group in groups),
        "distinct_openings": sum(len(set(group.openings)) for group in groups),
        "distinct_3": round(fmean(known), 4) if known else None,
        **shown(groups),
    }


OPENINGS = "openings"
"""Key of the alert about shared openings; the alert about near copies has an empty key."""
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
    repeated: float = param(0.5, "share of completions that copy another of their group, nearly or exactly", 0, 1)
    nearly: float = param(0.25, "share that must be near but not exact copies", 0, 1)
    batches: int = param(5, "distinct batches averaged", minimum=2)
    signal: float = param(0.5, "share of unsolved groups with differing rewards from which it is info …", 0, 1)
    fallen_entropy: float = param(0.5, "… unless the entropy fell to this share of its start", 0, 1)

    def setup(self) -> None:
        """Start with empty windows."""
        self.all, self.near, self.group_signal = Window(self.batches), Window(self.batches), GroupSignal(self.batches)
        self.openings = CopyPlaces()

    def observe(self, record: CompletionSummary, run: RunView) -> Iterable[Reading]:
        """Judge one batch together with those before it."""
        groups = run.functions.weighed(record.groups)
        return (*self._near(groups, run), *self._openings(groups, record.step))

    def _openings(self, groups: tuple[GroupSummary, ...], step: int) -> Iterable[Reading]:
        """Judge different texts that begin alike only where ranks or engines with one seed would lay copies."""
        judged = [g.openings for g in groups if g.prompts == 1 and g.unique == g.size == len(g.openings)]
        for opening in judged:
            self.openings.add_group(opening, step)
        found = self.openings.found(judged)
        if found is None:
            return (Reading(Verdict.OK, OPENINGS),) if judged else SILENT
        where = found.arrangement
        says = f"completions begin alike in the same places ({where.says()}) in {found.groups} groups in a row"
        return breach(
            OPENINGS,
            found.groups,
            message=f"{says}: ranks or engines share a seed and their texts diverge late",
            evidence={"layout": where.layout, "distinct_openings": where.texts, "groups": found.groups},
            first_step=found.first_step,
            immediate=True,
            hint=SEED_HINT,
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
        self.group_signal.add_batch(earned_by(compared), doubtful=contradicted(compared))
        if not self.all.full:
            return no_data(NotYet("too few batches yet"))
        repeated, nearly = self.all.mean() or 0.0, self.near.mean() or 0.0
        if repeated < self.repeated or nearly < self.nearly:
            return QUIET
        harmless = self._harmless(run)
        but = ", while rewards inside the groups differ and the entropy has not fallen" if harmless else ""
        return breach(
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
        )

    def _harmless(self, run: RunView) -> bool:
        """Whether the groups still teach and the entropy, if logged, has not fallen."""
        entropy = run.trend.entropy
        return (self.group_signal.share or 0.0) >= self.signal and entropy.ratio(entropy.start) > self.fallen_entropy
