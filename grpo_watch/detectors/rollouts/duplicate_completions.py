"""Completions of one prompt repeat exactly: ranks share a seed, decoding is greedy, or the policy collapsed."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from math import inf

from grpo_watch.detectors.rollouts.copies import BatchCopies, CopyLayout, copies_in
from grpo_watch.detectors.rollouts.copy_history import (
    AT_FIRST,
    CHANCE,
    EQUAL_IF_LONG,
    EQUAL_IF_SURE,
    EQUAL_IF_UNSURE,
    CopyHistory,
    one_text_each,
)
from grpo_watch.detectors.shared.likely_causes import COPIES
from grpo_watch.engine.detector import SILENT, Detector, NotYet, RunView, no_data, param
from grpo_watch.engine.records import CompletionSummary, MetricRow, Reading, Severity, Tick, Verdict
from grpo_watch.engine.traits import WasteKind
from grpo_watch.engine.window import BATCHES_AHEAD


@dataclass(frozen=True, slots=True)
class CopyCause:
    """Why texts repeat, how severe that is, and how to fix it."""

    severity: Severity
    says: str
    hint: str


SHARED_SEED = CopyCause(
    Severity.CRITICAL,
    "the same pattern in every group, so ranks or engines share a seed",
    "Give every rank and engine its own seed (seed + data-parallel rank) and set no per-request seed.",
)
GREEDY = CopyCause(
    Severity.CRITICAL,
    "one text per group although the entropy is not low, so decoding is greedy or all requests share a seed",
    "Print the resolved SamplingParams / generation_config: set --temperature 1.0 --top_p 1.0, no top_k=1, "
    "do_sample=True, and no per-request seed.",
)
GREEDY_FROM_START = CopyCause(
    Severity.CRITICAL,
    "one text per group from the start (no entropy is logged): decoding is greedy, or all requests share a seed",
    GREEDY.hint,
)
NEAR_GREEDY = CopyCause(
    Severity.WARNING,
    "texts repeat without a common pattern: near-greedy sampling or a collapse",
    "Compare the resolved sampling parameters with the intended ones; raise the temperature; watch the entropy.",
)
FEW_TEXTS = CopyCause(
    Severity.INFO,
    "texts repeat without a common pattern, while rewards differ inside the groups and the entropy has not fallen",
    "Often the task has few right answers, written alike. If not, compare the resolved sampling parameters with the "
    "intended ones.",
)
COLLAPSE = CopyCause(
    Severity.WARNING,
    "the policy collapsed to few texts",
    "Go back to a checkpoint with healthy entropy; raise the temperature or beta, lower the learning rate, use "
    "clip-higher (epsilon_high) or more diverse prompts.",
)


def sampled(cause: CopyCause, run: RunView) -> CopyCause:
    """The cause, worded so that the run's own sampling settings don't contradict it."""
    heat = run.number("temperature")
    if cause not in {GREEDY, GREEDY_FROM_START} or heat is None or heat <= COLD or run.number("top_k") == 1:
        return cause
    says = (
        f"one text per group at temperature {heat:g}, so all requests of a prompt share a seed, or the engine samples "
    )
    return replace(cause, says=says + "by other settings (top_k, generation_config)", hint=SEEDED)


COLD = 0.05
"""Highest temperature at which decoding counts as greedy."""
SEEDED = (
    "Set no per-request seed (with n samples per prompt each repeats the same text), and print the engine's resolved "
    "SamplingParams: temperature 1.0, top_p 1.0, no top_k."
)
SIGNAL = 0.5
"""Share of unsolved groups with different rewards from which a run learns despite copies."""


def cause_of(
    batch: BatchCopies,
    history: CopyHistory,
    rule: DuplicateCompletions,
    *,
    low: bool | None,
    fallen: bool,
    certain: bool,
) -> CopyCause | None:
    """The cause of a batch's copies; None for solved prompts and for short answers in tags.

    Args:
        batch: the copies.
        history: the copies of earlier batches.
        rule: the detector, for its parameters.
        low: whether the entropy is low; None if none is logged.
        fallen: whether it is low for this run: a policy may have been sure of its answers from the start.
        certain: whether the entropy rules out that texts are equal by themselves, as those of solved prompts are.
    """
    if (seed := _seed(batch, history, rule, low=low)) is not None:
        return seed
    if low:
        return COLLAPSE if fallen else _without_rule(batch, history, rule)
    if history.was_diverse and not certain and _solved(batch, history):
        return None
    if not batch.regular(rule.alike) or batch.layout is not CopyLayout.ONE_TEXT:
        return _without_rule(batch, history, rule)
    if low is None:
        return COLLAPSE if history.sampled else GREEDY_FROM_START
    return GREEDY


def _solved(batch: BatchCopies, history: CopyHistory) -> bool:
    """Whether every text earns the best reward of the run, or may, if the total rewards are unknown."""
    if history.group_signal.doubtful:
        return batch.one_text == batch.groups
    return batch.lowest_reward is not None and batch.lowest_reward >= history.best_reward


def _seed(
    batch: BatchCopies, history: CopyHistory, rule: DuplicateCompletions, *, low: bool | None
) -> CopyCause | None:
    if (shared := history.places.found(batch.patterns)) is not None:
        return replace(SHARED_SEED, says=f"{shared.says()}, so ranks or engines share a seed")
    ranks = batch.rank_shaped or _repeats_itself(batch, history, rule.batches)
    alike = batch.regular(rule.alike) and ranks and (not low or history.alike >= rule.batches)
    return SHARED_SEED if alike else None


def _without_rule(batch: BatchCopies, history: CopyHistory, rule: DuplicateCompletions) -> CopyCause | None:
    if batch.characters < rule.template or batch.repeated < rule.many:
        return None
    return FEW_TEXTS if (history.group_signal.share or 0.0) >= SIGNAL else NEAR_GREEDY


def _repeats_itself(batch: BatchCopies, history: CopyHistory, patience: int) -> bool:
    """Whether small batches repeat one partial pattern: chance would put the copies elsewhere."""
    partial = batch.layout is CopyLayout.IRREGULAR
    return partial and history.alike >= patience and history.groups >= 2 * patience


def proven(
    cause: CopyCause, batch: BatchCopies, history: CopyHistory, rule: DuplicateCompletions, *, low: bool | None
) -> bool:
    """Whether enough batches showed the copies to report the cause.

    Two groups of long texts that never repeat otherwise prove a shared seed, and greedy decoding unless groups held
    several texts before. Short answers, texts drawn from a few, and a run's first texts (which may be either) must show
    one pattern so often that chance does not explain it.
    """
    if history.places.found(batch.patterns) is not None:
        return True
    ordered = cause.severity is Severity.CRITICAL
    one_text = batch.layout is CopyLayout.ONE_TEXT
    few = batch.characters < rule.template or history.few_texts
    if few and (ordered or (one_text and low is None)):
        often = history.alike >= rule.batches and history.groups >= 2 * rule.batches
        return often and _chance(history, one_text=one_text, low=low) <= CHANCE
    if not ordered:
        return history.batches >= rule.batches
    at_once = batch.groups > 1 and not (one_text and (history.sampled or low is None))
    often = at_once or history.alike >= rule.batches
    return often and (history.was_diverse or _chance_at_first(history, one_text=one_text, low=low) <= AT_FIRST)


def _chance_at_first(history: CopyHistory, *, one_text: bool, low: bool | None) -> float:
    """The chance while no batch has shown that texts differ; an entropy that is not low shows it too."""
    if not one_text:
        return history.chance + history.drawn
    return one_text_each(history.groups, history.copies, (0, 0), EQUAL_IF_LONG) if low is None else float("-inf")


def _chance(history: CopyHistory, *, one_text: bool, low: bool | None) -> float:
    if not one_text:
        return history.chance
    equal = EQUAL_IF_SURE if low is None else EQUAL_IF_UNSURE
    return one_text_each(history.groups, history.copies, history.one_text_before, equal)


UNSURE = 1.0
"""Entropy (nats per token) from which a policy does not keep writing one text."""
SHORT = "the dumped texts are too short, empty, or not in groups"


class DuplicateCompletions(Detector):
    """Joins each dumped batch with the entropy of its step, which separates greedy decoding from a collapse."""

    explained_by = ("non-finite-metric", "entropy-collapse")
    wastes = WasteKind.STEPS
    likely_causes = COPIES
    dashboards = ("grpo-sampling-weights",)

    reads = (CompletionSummary, MetricRow, Tick)
    needs = (("completions",),)
    survives_attempts = True
    min_characters: int = param(12, "length below which texts may be equal by chance or by task", minimum=1)
    alike: float = param(0.9, "share of groups that must have the same pattern", 0, 1)
    low_entropy: float = param(0.1, "entropy (nats per token) below which equal texts are a collapse", minimum=0)
    fallen_entropy: float = param(0.5, "the same, as a share of the run's highest entropy so far", 0, 1)
    batches: int = param(3, "distinct batches needed if one is not enough proof", minimum=1)
    template: int = param(64, "length below which texts may be answers in tags that repeat by chance", minimum=1)
    many: float = param(0.5, "share of repeated completions without a common pattern that is a warning", 0, 1)

    def setup(self) -> None:
        """Start with no waiting batches."""
        self.waiting: deque[BatchCopies] = deque(maxlen=BATCHES_AHEAD)
        self.history, self.attempt = CopyHistory(), 1
        self.unproven: Reading | None = None

    def early_sign(self, run: RunView) -> Reading | None:  # noqa: ARG002
        """Copies in the newest batch that chance or the task may still explain."""
        return self.unproven

    def observe(self, record: CompletionSummary | MetricRow | Tick, run: RunView) -> Iterable[Reading]:
        """Take a batch, a row or the end of input; judge the batches whose row has arrived."""
        if run.attempt > self.attempt:  # keeps that groups were diverse before
            self.attempt = run.attempt
            self.history.end_streak()
        if isinstance(record, CompletionSummary):
            record = replace(record, groups=run.functions.weighed(record.groups))
            batch = copies_in(record, self.min_characters)
            if batch is None:
                return no_data(SHORT)
            self.waiting.append(batch)
        if not self.waiting:
            return SILENT
        reached = inf if isinstance(record, Tick) and not run.step else run.step
        return [self._judge(batch, run) for batch in self._ready(reached)]

    def _ready(self, reached: float) -> Iterator[BatchCopies]:
        while self.waiting and self.waiting[0].step <= reached:
            yield self.waiting.popleft()

    def _judge(self, batch: BatchCopies, run: RunView) -> Reading:
        self.unproven = None
        entropies = run.trend.entropy_by_step
        entropy = entropies.at(batch.step)
        fallen = entropy is not None and entropy < self.fallen_entropy * entropies.highest(batch.step)
        low = None if entropy is None else fallen or entropy < self.low_entropy
        unsure = entropy is not None and entropy >= UNSURE and not low
        certain = unsure and self.history.never_one_text and batch.impossible(entropy or 0.0, self.alike)
        if batch.short and not certain:
            return Reading(Verdict.NO_DATA, message=SHORT, step=batch.step)
        if not (batch.regular(self.alike) or batch.repeated >= self.many):
            self.history.add_diverse(batch)
            return Reading(Verdict.OK, value=batch.repeated, step=batch.step)
        self.history.extend(batch, self.alike)
        cause = cause_of(batch, self.history, self, low=low, fallen=fallen, certain=certain)
        if cause is None:
            return Reading(Verdict.OK, value=batch.repeated, step=batch.step)
        if not certain and not proven(cause, batch, self.history, self, low=low):
            if self.history.alike >= self.batches:
                return Reading(Verdict.OK, value=batch.repeated, step=batch.step)
            self.unproven = Reading(Verdict.BREACH, message=batch.says(), evidence=batch.evidence())
            waits = NotYet("repeated texts in too few distinct batches yet")
            return Reading(Verdict.NO_DATA, message=waits, step=batch.step)
        return self._breach(batch, sampled(cause, run), entropy)

    def _breach(self, batch: BatchCopies, cause: CopyCause, entropy: float | None) -> Reading:
        return Reading(
            Verdict.BREACH,
            value=batch.repeated,
            severity=cause.severity,
            message=f"{batch.says()}: {cause.says}",
            hint=cause.hint,
            evidence={**batch.evidence(), "entropy": entropy},
            step=batch.step,
            first_step=self.history.first_step,
            immediate=True,
        )
