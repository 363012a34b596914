"""Why texts repeat inside groups: a shared seed, greedy decoding, a collapse, or the task; and likely causes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import inf
from typing import NamedTuple

from grpo_watch.detectors.rollouts.copies import BatchCopies, CopyLayout
from grpo_watch.detectors.rollouts.copy_history import (
    AT_FIRST,
    CHANCE,
    EQUAL_IF_LONG,
    EQUAL_IF_SURE,
    EQUAL_IF_UNSURE,
    CopyHistory,
    one_text_each,
)
from grpo_watch.engine.detector import RunView
from grpo_watch.engine.likely_causes import LikelyCause
from grpo_watch.engine.records import Severity

GREEDY_CAUSES = (
    LikelyCause("temperature is {temperature}: decoding is greedy; set 1.0.", bounds={"temperature": (0.0, 0.05)}),
    LikelyCause("top_k is 1: decoding is greedy; set 0 (vLLM: -1).", bounds={"top_k": (1, 1)}),
    LikelyCause("top_p is {top_p}: decoding is greedy; set 1.0.", bounds={"top_p": (0.0, 0.05)}),
    LikelyCause("do_sample is off: decoding is greedy; switch it on.", {"do_sample": ("false",)}),
    LikelyCause(
        "Decoding is greedy in effect: do_sample, top_k 1, or defaults of generation_config that override the "
        "temperature (trl#5783, transformers 4.50 and later).",
        shows="decoding is greedy",
    ),
)
SAME_SEEDS = (
    LikelyCause(
        "Every request to the engine has seed {request_seed}: leave it out, or give each its own.",
        bounds={"request_seed": (-inf, inf)},
    ),
    LikelyCause(
        "All training processes began with one random seed, as the callback saw: seed each with seed + rank.",
        {"rank_seeds": ("same",)},
    ),
)
OTHER_TEMPERATURE = LikelyCause(
    "The model's generation_config has temperature {model_temperature}, which transformers 4.50 and later may put over "
    "the trainer's 1.0 (trl#5783): take it out of generation_config.",
    {"use_vllm": ("false",)},
    bounds={"model_temperature": (0.0, 0.99), "temperature": (1.0, 1.0)},
)
ANY_SAMPLING = LikelyCause(
    "Sampling is greedy in effect: generation_config defaults can override the temperature (trl#5783, transformers "
    "4.50 and later); print the resolved sampling parameters."
)

COPIES = (*GREEDY_CAUSES, *SAME_SEEDS, OTHER_TEMPERATURE)
NEAR_COPIES = (*GREEDY_CAUSES, OTHER_TEMPERATURE, ANY_SAMPLING)
"""Each in rank order, from issues of the frameworks (numbers in the texts)."""


@dataclass(frozen=True, slots=True)
class CopyCause:
    """Why texts repeat, how bad that is, and what to do."""

    severity: Severity
    says: str
    hint: str


SHARED_SEED = CopyCause(
    Severity.CRITICAL,
    "the same pattern in every group, so ranks or engines share a seed",
    "Give every rank and engine its own seed (seed + data-parallel rank) and set no per-request seed. Fixed in "
    "ms-swift 3.2.1 (colocate 3.6, rollout server 4.0) and TRL 0.15.",
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
SCATTERED_SEED = CopyCause(
    Severity.WARNING,
    "the same number of copies in every group, so ranks or engines share a seed (the dump has no order to prove it)",
    SHARED_SEED.hint,
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
    """The cause in words that the run's own sampling settings don't refute."""
    heat = run.number("temperature")
    if cause not in {GREEDY, GREEDY_FROM_START} or heat is None or heat <= COLD or run.number("top_k") == 1:
        return cause
    says = (
        f"one text per group at temperature {heat:g}, so all requests of a prompt share a seed, or the engine samples "
    )
    return replace(cause, says=says + "by other settings (top_k, generation_config)", hint=SEEDED)


COLD = 0.05
"""Temperature up to which decoding is greedy."""
SEEDED = (
    "Set no per-request seed (with n samples per prompt each repeats the same text), and print the engine's resolved "
    "SamplingParams: temperature 1.0, top_p 1.0, no top_k."
)
SIGNAL = 0.5
"""Share of unsolved groups with different rewards from which copies do not keep the run from learning."""


class CopyLimits(NamedTuple):
    """When what is seen counts.

    ``alike``: share of groups that must be; ``patience``: batches of one pattern that outweigh a low entropy;
    ``template``: characters below which texts that repeat without a rule may be answers in tags; ``many``: share of
    copies without a rule from which they are reported.
    """

    alike: float
    patience: int
    template: int
    many: float


def cause_of(
    batch: BatchCopies, history: CopyHistory, limits: CopyLimits, *, low: bool | None, fallen: bool, certain: bool
) -> CopyCause | None:
    """The cause of a batch's copies; None for solved prompts and for short answers in tags.

    Args:
        batch: the copies.
        history: what batches before it showed.
        limits: when what is seen counts.
        low: whether the entropy is low; None where none is logged.
        fallen: whether it is, for this run: a policy may have been sure of its answers from the start.
        certain: whether the entropy excludes that the texts are equal by themselves, as those of solved prompts are.
    """
    if (seed := _seed(batch, history, limits, low=low)) is not None:
        return seed
    if low:
        return COLLAPSE if fallen else _without_rule(batch, history, limits)
    if history.was_diverse and not certain and _solved(batch, history):
        return None
    if not batch.regular(limits.alike) or batch.layout is not CopyLayout.ONE_TEXT:
        return _without_rule(batch, history, limits)
    if low is None:
        return COLLAPSE if history.sampled else GREEDY_FROM_START
    return GREEDY


def _solved(batch: BatchCopies, history: CopyHistory) -> bool:
    """Whether every text earns the best reward of the run; or may, where the total rewards are not known."""
    if history.group_signal.doubtful:
        return batch.one_text == batch.groups
    return batch.lowest_reward is not None and batch.lowest_reward >= history.best_reward


def _seed(batch: BatchCopies, history: CopyHistory, limits: CopyLimits, *, low: bool | None) -> CopyCause | None:
    if (shared := history.places.found(batch.patterns)) is not None:
        return replace(SHARED_SEED, says=f"{shared.says()}, so ranks or engines share a seed")
    ranks = batch.rank_shaped or _repeats_itself(batch, history, limits.patience)
    alike = batch.regular(limits.alike) and ranks and (not low or history.alike >= limits.patience)
    return SHARED_SEED if alike else None


def _without_rule(batch: BatchCopies, history: CopyHistory, limits: CopyLimits) -> CopyCause | None:
    if batch.scattered(limits.alike, limits.template) and _as_often(history, limits.patience):
        return SCATTERED_SEED
    if batch.characters < limits.template or batch.repeated < limits.many:
        return None
    return FEW_TEXTS if _teaches(history) else NEAR_GREEDY


def _as_often(history: CopyHistory, patience: int) -> bool:
    """Whether as many copies come batch after batch, which texts that are few do by chance."""
    excluded = {False: 0.0, None: AT_FIRST, True: CHANCE}[history.copied_before]
    return history.counted >= patience and history.counted_chance <= excluded


def _teaches(history: CopyHistory) -> bool:
    return (history.group_signal.share or 0.0) >= SIGNAL


def _repeats_itself(batch: BatchCopies, history: CopyHistory, patience: int) -> bool:
    """Whether small batches show one partial pattern again and again: chance puts the copies elsewhere."""
    partial = batch.layout is CopyLayout.IRREGULAR
    return partial and history.alike >= patience and history.groups >= 2 * patience


def proven(cause: CopyCause, batch: BatchCopies, history: CopyHistory, limits: CopyLimits, *, low: bool | None) -> bool:
    """Whether so many batches showed the copies that the cause may be reported.

    Two groups of long texts that never repeat otherwise are proof of a shared seed, and of greedy decoding unless
    groups held several texts before. Short answers, texts drawn from a few, and a run's first texts, which may be, must
    show one pattern so often that chance does not explain it.
    """
    if history.places.found(batch.patterns) is not None:
        return True
    ordered = cause.severity is Severity.CRITICAL
    one_text = batch.layout is CopyLayout.ONE_TEXT
    few = batch.characters < limits.template or history.few_texts
    if few and (ordered or (one_text and low is None)):
        often = history.alike >= limits.patience and history.groups >= 2 * limits.patience
        return often and _chance(history, one_text=one_text, low=low) <= CHANCE
    if not ordered:
        return history.batches >= limits.patience
    at_once = batch.groups > 1 and not (one_text and (history.sampled or low is None))
    often = at_once or history.alike >= limits.patience
    return often and (history.was_diverse or _chance_at_first(history, one_text=one_text, low=low) <= AT_FIRST)


def _chance_at_first(history: CopyHistory, *, one_text: bool, low: bool | None) -> float:
    """As long as no batch showed that texts differ; an entropy that is not low shows it too."""
    if not one_text:
        return history.chance + history.drawn
    return one_text_each(history.groups, history.copies, (0, 0), EQUAL_IF_LONG) if low is None else float("-inf")


def _chance(history: CopyHistory, *, one_text: bool, low: bool | None) -> float:
    if not one_text:
        return history.chance
    equal = EQUAL_IF_SURE if low is None else EQUAL_IF_UNSURE
    return one_text_each(history.groups, history.copies, history.one_text_before, equal)
