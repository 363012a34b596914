"""How equal texts lie inside the groups of one generation batch: a stride, a round-robin, one text, or no rule."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from enum import Enum

from grpo_watch.core.records import CompletionSummary, GroupSummary, Scalar, Severity, Stream

GROUPS_FOR_IRREGULAR = 3
"""Two groups of a collapsed policy were seen to share an irregular pattern by chance (TRL 1.16.0); three were not."""


class Layout(str, Enum):
    """How the copies of a group are laid out."""

    DISTINCT = "distinct"
    STRIDE = "stride"
    ROUND_ROBIN = "round-robin"
    ONE_TEXT = "one text"
    IRREGULAR = "irregular"


def layout(pattern: tuple[int, ...]) -> Layout:
    """The layout of a pattern that numbers equal texts by first appearance.

    ``(0, 1, 2, 0, 1, 2)`` is a stride (each of k engines repeats the same u texts), ``(0, 0, 1, 1, 2, 2)`` a
    round-robin (neighbours repeat), ``(0, 0, 0)`` one text.
    """
    size, unique = len(pattern), len(set(pattern))
    if unique == size:
        return Layout.DISTINCT
    if unique == 1:
        return Layout.ONE_TEXT
    if size % unique == 0:
        copies = size // unique
        if pattern == tuple(range(unique)) * copies:
            return Layout.STRIDE
        if pattern == tuple(number for number in range(unique) for _ in range(copies)):
            return Layout.ROUND_ROBIN
    return Layout.IRREGULAR


@dataclass(frozen=True, slots=True)
class Cause:
    """Why texts repeat, how bad that is, and what to do."""

    severity: Severity
    says: str
    hint: str


SHARED_SEED = Cause(
    Severity.CRITICAL,
    "the same pattern in every group, so ranks or engines share a seed",
    "Give every rank and engine its own seed (seed + data-parallel rank) and set no per-request seed. Fixed in "
    "ms-swift 3.2.1 (colocate 3.6, rollout server 4.0) and TRL 0.15.",
)
GREEDY = Cause(
    Severity.CRITICAL,
    "one text per group at normal entropy, so decoding is greedy or every request has one seed",
    "Print the resolved SamplingParams / generation_config: set --temperature 1.0 --top_p 1.0, no top_k=1, "
    "do_sample=True, and no per-request seed.",
)
NEAR_GREEDY = Cause(
    Severity.WARNING,
    "texts repeat without a rule: near-greedy sampling or a collapse",
    "Compare the resolved sampling parameters with the intended ones; raise the temperature; watch the entropy.",
)
COLLAPSE = Cause(
    Severity.WARNING,
    "the policy collapsed to few texts",
    "Go back to a checkpoint with healthy entropy; raise the temperature or beta, lower the learning rate, use "
    "clip-higher (epsilon_high) or more diverse prompts.",
)


@dataclass(frozen=True, slots=True)
class BatchCopies:
    """What one dumped generation batch shows.

    ``pattern`` is the commonest one and ``alike`` the share of the ``groups`` judged that have it; ``repeated`` is the
    share of completions that repeat another one of their group; ``digest`` tells a re-dumped table.
    """

    step: int
    pattern: tuple[int, ...]
    layout: Layout
    alike: float
    groups: int
    repeated: float
    digest: str

    @property
    def distinct(self) -> int:
        """Distinct texts per group in the commonest pattern."""
        return len(set(self.pattern))

    @property
    def rank_shaped(self) -> bool:
        """Whether the copies lie as ranks or engines with one seed lay them (a collapse has no such order)."""
        orderly = self.layout in (Layout.STRIDE, Layout.ROUND_ROBIN)
        return orderly or (self.layout is Layout.IRREGULAR and self.groups >= GROUPS_FOR_IRREGULAR)

    def says(self) -> str:
        """One phrase for people."""
        return f"{self.distinct} distinct of {len(self.pattern)} completions in {self.alike:.0%} of the groups"

    def evidence(self) -> dict[str, Scalar]:
        """The numbers behind it."""
        return {
            "pattern": str(self.pattern),
            "layout": self.layout.value,
            "groups": self.groups,
            "groups_alike_ratio": round(self.alike, 4),
            "repeated_ratio": round(self.repeated, 4),
        }


class CopyStreak:
    """Consecutive batches with repeated texts: how many, how many of the newest share one pattern, and since when."""

    def __init__(self) -> None:
        self.batches = self.alike = self.first_step = 0
        self._newest: BatchCopies | None = None

    def extend(self, batch: BatchCopies) -> None:
        """Add a batch; one that was dumped again counts once."""
        before, self._newest = self._newest, batch
        if before is not None and batch.digest == before.digest:
            return
        self.batches += 1
        self.alike = self.alike + 1 if before is not None and before.pattern == batch.pattern else 1
        self.first_step = self.first_step or batch.step


def copies_in(summary: CompletionSummary, min_characters: int) -> BatchCopies | None:
    """The copies of a train batch, or None where its texts can't tell.

    Judged are groups of one prompt without empty completions, at least half of whose texts have ``min_characters``;
    a batch of which these are less than half is a short-answer task.
    """
    if summary.stream is not Stream.TRAIN or not summary.complete:
        return None
    groups = [group for group in summary.groups if _telling(group, min_characters)]
    if not groups or len(groups) * 2 < len(summary.groups):
        return None
    pattern, count = Counter(group.pattern for group in groups).most_common(1)[0]
    return BatchCopies(
        step=summary.step,
        pattern=pattern,
        layout=layout(pattern),
        alike=count / len(groups),
        groups=len(groups),
        repeated=sum(group.size - group.unique for group in groups) / sum(group.size for group in groups),
        digest="".join(group.digest for group in summary.groups),
    )


def _telling(group: GroupSummary, min_characters: int) -> bool:
    long = sum(length >= min_characters for length in group.lengths)
    return group.size > 1 and group.prompts == 1 and group.empty == 0 and 2 * long >= group.size
