"""Completions of one prompt differ by a few words, or begin alike in a pattern: the group explores one answer."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import log10
from statistics import fmean

from grpo_watch.detectors.rollouts.copies import GroupSignal, earned_by, shown
from grpo_watch.detectors.rollouts.copy_history import Arrangement, arrangements
from grpo_watch.detectors.shared.likely_causes import NEAR_COPIES
from grpo_watch.engine.detector import QUIET, SILENT, Detector, NotYet, RunView, breach, no_data, param
from grpo_watch.engine.records import CompletionSummary, GroupSummary, Reading, Scalar, Severity, Verdict
from grpo_watch.engine.reward_functions import contradicted
from grpo_watch.engine.window import Window

ALIKE = 0.95
"""Share of the completions in one place of the pattern that must begin like the first one there …"""
OTHERS = 0.5
"""… while of the pairs in different places at most this many do: a common phrase would be in all of them …"""
CHANCE = -9.0
"""… and the decimal logarithm of the chance that it came about if openings were drawn at random: 1 in 10^9, so that ten
thousand batches with six arrangements each see it once in 10^4 runs."""

SEED_HINT = (
    "Give every rank and engine its own seed (seed + data-parallel rank) and set no per-request seed; then compare how "
    "the completions of one group begin."
)


@dataclass(frozen=True, slots=True)
class SharedPrefixes:
    """Groups in which ranks or engines begin the same texts, in one arrangement.

    ``together`` and ``apart`` are the shares of completions that begin alike in the same and in different places.
    """

    arrangement: Arrangement
    together: float
    apart: float

    def says(self) -> str:
        """One phrase for people."""
        each = self.arrangement
        step = f"every {each.texts}th" if each.layout == "stride" else each.says()
        return f"completions begin alike in {self.together:.0%} of the cases ({step}), others in {self.apart:.0%}"

    def evidence(self) -> dict[str, Scalar]:
        """The numbers behind it."""
        return {
            "layout": self.arrangement.layout,
            "distinct_openings": self.arrangement.texts,
            "alike_ratio": round(self.together, 4),
            "others_alike_ratio": round(self.apart, 4),
        }


def shared_openings(groups: Sequence[GroupSummary]) -> SharedPrefixes | None:
    """The arrangement that explains which texts begin alike; None where none does, or exact copies do already.

    Seeds that are shared and texts that drift apart late (batch effects of the kernels) leave equal beginnings at the
    same distance in every group. Judged are groups of one prompt and of the commonest size, four texts or more.
    """
    judged = [group for group in groups if group.prompts == 1 and len(group.openings) == group.size > 3]  # noqa: PLR2004
    if not judged:
        return None
    size = max((group.size for group in judged), key=[group.size for group in judged].count)
    judged = [group for group in judged if group.size == size]
    best, least = None, CHANCE
    for each in arrangements(size):
        together, apart = _shares([group.openings for group in judged], each.place)
        chance = len(judged) * (size - each.texts) * log10(apart)
        copies, _ = _shares([group.pattern for group in judged], each.place)
        if together >= ALIKE and apart <= OTHERS and copies < OTHERS and chance < least:
            best, least = SharedPrefixes(each, together, apart), chance
    return best


def _shares(patterns: Sequence[tuple[int, ...]], place: Callable[[int], int]) -> tuple[float, float]:
    """Share of completions that are like the first of their place, and of pairs in different places that are alike.

    The second never is 0: one pair more is counted as alike than was seen (Laplace).
    """
    places = [place(at) for at in range(len(patterns[0]))]
    first = [places.index(one) for one in places]
    others = [pair for pair in combinations(range(len(places)), 2) if places[pair[0]] != places[pair[1]]]
    later = [at for at, one in enumerate(first) if one != at]
    repeating = [each for each in patterns if len(set(each)) < len(each)]  # nothing is alike in the others
    together = sum(each[at] == each[first[at]] for each in repeating for at in later)
    apart = sum(each[one] == each[other] for each in repeating for one, other in others)
    return together / (len(patterns) * len(later)), (apart + 1) / (len(patterns) * len(others) + 1)


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
    repeated: float = param(0.5, "share of completions that copy another of their group, nearly or exactly", 0, 1)
    nearly: float = param(0.25, "share that must be near but not exact copies", 0, 1)
    batches: int = param(5, "distinct batches averaged", minimum=2)
    signal: float = param(0.5, "share of unsolved groups with differing rewards from which it is info …", 0, 1)
    fallen_entropy: float = param(0.5, "… unless the entropy fell to this share of its start", 0, 1)

    def setup(self) -> None:
        """Empty windows."""
        self.all, self.near, self.group_signal = Window(self.batches), Window(self.batches), GroupSignal(self.batches)
        self.newest: deque[GroupSummary] = deque(maxlen=GROUPS)

    def observe(self, record: CompletionSummary, run: RunView) -> Iterable[Reading]:
        """Judge one batch together with those before it."""
        groups = run.functions.weighed(record.groups)
        return (*self._near(groups, run), *self._openings(groups))

    def _openings(self, groups: tuple[GroupSummary, ...]) -> Iterable[Reading]:
        self.newest.extend(group for group in groups if group.openings)
        if not any(group.openings for group in groups):
            return SILENT
        found = shared_openings(self.newest)
        if found is None:
            return (Reading(Verdict.OK, OPENINGS),)
        message = f"{found.says()}: ranks or engines share a seed and their texts diverge late"
        return breach(OPENINGS, found.together, message=message, evidence=found.evidence(), hint=SEED_HINT)

    def _near(self, groups: tuple[GroupSummary, ...], run: RunView) -> Iterable[Reading]:
        compared = [
            group for group in groups if group.near_unique is not None and group.prompts == 1 and group.size > 1
        ]
        if not compared:
            return no_data("the texts were not compared") if groups else SILENT
        size = sum(group.size for group in compared)
        self.all.push(sum(group.size - different(group) for group in compared) / size)
        self.near.push(sum(group.unique - different(group) for group in compared) / size)
        self.group_signal.take(earned_by(compared), doubtful=contradicted(compared))
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
