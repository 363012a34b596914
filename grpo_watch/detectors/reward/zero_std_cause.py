"""Why the members of a group get equal rewards: cut off, a constant function, all right, all wrong, or unknown."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from statistics import median
from typing import NamedTuple

from grpo_watch.engine.evidence import FLOAT_NOISE
from grpo_watch.engine.metric_names import split_label
from grpo_watch.engine.metric_trend import EDGE, WIDTH, at_maximum
from grpo_watch.engine.records import MetricRow


class ZeroStdKind(str, Enum):
    """The kind in a word, as evidence shows it."""

    CUT = "cut off"
    CONSTANT = "constant"
    NEVER_SCORED = "never scored"
    HIGHEST = "highest"
    LOWEST = "lowest"
    COPIES = "copies"
    UNKNOWN = "unknown"


class ZeroStdCause(NamedTuple):
    """Which kind, what to say, and what to do (empty: the rule's own hint)."""

    kind: ZeroStdKind
    says: str
    hint: str = ""


CUT = ZeroStdCause(
    ZeroStdKind.CUT,
    "every completion is truncated at the length limit",
    "Raise max_completion_length two- to fourfold, check the EOS token and the chat template, shorten prompts.",
)
CONSTANT = ZeroStdCause(
    ZeroStdKind.CONSTANT,
    "every completion of the batch gets the same reward",
    "Score a gold answer and nonsense with the reward functions: the scores must differ. Look for a constant, a "
    "swallowed exception, or a format that never matches.",
)
HIGHEST = ZeroStdCause(
    ZeroStdKind.HIGHEST,
    "rewards are at the highest that the run has reached, as for solved prompts",
    "Drop solved prompts, use harder data or a stricter reward, or stop: there is nothing left to learn here.",
)
LOWEST = ZeroStdCause(
    ZeroStdKind.LOWEST,
    "rewards are at the lowest that the run has seen, as for prompts that are too hard",
    "Score a gold answer with the reward functions first; then use easier prompts, a warm start, or a graded reward.",
)
NEVER_SCORED = ZeroStdCause(
    ZeroStdKind.NEVER_SCORED,
    "no completion scores above 0, so all are wrong or the function never scores",
    "Score a gold answer and nonsense with the reward functions: the scores must differ. If they do, use easier "
    "prompts, a warm start, or a graded reward.",
)
COPIES = ZeroStdCause(
    ZeroStdKind.COPIES,
    "the completions of a group are copies of each other",
    "See duplicate-completions: equal texts get equal rewards.",
)
UNKNOWN = ZeroStdCause(ZeroStdKind.UNKNOWN, "members of a group get equal rewards")


def why(row: MetricRow, rewards: Sequence[float], lowest: float, highest: float, *, dead: bool) -> ZeroStdCause:
    """The likeliest reason.

    ``rewards`` are the mean rewards of the rows judged, the newest last; ``lowest`` and ``highest`` those that the run
    has seen; ``dead`` says that no group of these rows had a spread.
    """
    if at_maximum(rewards[-WIDTH:], lowest, highest):
        return UNKNOWN if _cancels(row) else HIGHEST
    if row.values.get("completion_truncated_ratio") == 1.0:
        return CUT
    spreads = [
        std for key, std in row.values.items() if split_label(key)[0] == "reward_function_std" and std is not None
    ]
    differ = bool(spreads) and max(spreads) >= FLOAT_NOISE
    if not rewards:
        return CONSTANT if dead and spreads and not differ else UNKNOWN
    usual = median(rewards)  # one row at an edge says nothing about the others
    if not highest - lowest > FLOAT_NOISE:
        one = NEVER_SCORED if abs(usual) <= FLOAT_NOISE else CONSTANT
        return one if dead and not differ else UNKNOWN
    if highest <= FLOAT_NOISE and dead and abs(usual) <= FLOAT_NOISE:
        return NEVER_SCORED  # a penalty moved the mean now and then
    return LOWEST if usual <= lowest + EDGE * (highest - lowest) else UNKNOWN


def _cancels(row: MetricRow) -> bool:
    """Whether parts of the reward are above and below zero: a total at its highest may then be what they leave."""
    parts = [mean for key, mean in row.values.items() if split_label(key)[0] == "reward_function_mean"]
    known = [mean for mean in parts if mean is not None]
    return bool(known) and max(known) > FLOAT_NOISE and min(known) < -FLOAT_NOISE
