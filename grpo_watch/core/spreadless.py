"""Why the members of a group get equal rewards: cut off, a constant function, all right, all wrong, or unknown."""

from __future__ import annotations

from typing import NamedTuple

from grpo_watch.core.evidence import FLOAT_NOISE
from grpo_watch.core.names import split_label
from grpo_watch.core.records import MetricRow

EDGE = 0.05
"""Share of the run's own range of rewards that counts as its top or bottom."""


class Why(NamedTuple):
    """What to say, and what to do (empty: the rule's own hint)."""

    says: str
    hint: str = ""


CUT = Why(
    "every completion is cut at the length limit",
    "Raise max_completion_length (two to four times), check the EOS token and the chat template, shorten prompts.",
)
CONSTANT = Why(
    "every completion of the batch gets the same reward",
    "Call the reward functions on a gold answer and on nonsense: they have to differ. Look for a constant, a swallowed "
    "exception, or a format that is never matched.",
)
HIGHEST = Why(
    "rewards are at the run's highest so far, as with solved prompts",
    "Drop solved prompts, use harder data or a stricter reward, or stop: there is nothing left to learn here.",
)
LOWEST = Why(
    "rewards are at the run's lowest so far, as with prompts that are too hard",
    "Score a gold answer with the reward functions first; then use easier prompts, a warm start, or a graded reward.",
)
COPIES = Why(
    "the completions of a group are copies of each other", "See duplicate-completions: equal texts get equal rewards."
)
UNKNOWN = Why("members of a group get equal rewards")


def why(row: MetricRow, reward: float | None, lowest: float, highest: float) -> Why:
    """The likeliest reason; ``lowest`` and ``highest`` are the mean rewards that the run has seen."""
    if row.values.get("completion_truncated_ratio") == 1.0:
        return CUT
    spreads = [
        std for key, std in row.values.items() if split_label(key)[0] == "reward_function_std" and std is not None
    ]
    if spreads and max(spreads) < FLOAT_NOISE:
        return CONSTANT
    if reward is None or not highest - lowest > FLOAT_NOISE:
        return UNKNOWN if reward is None or spreads else CONSTANT  # groups without spread and one mean for ever
    if reward >= highest - EDGE * (highest - lowest):
        return HIGHEST
    return LOWEST if reward <= lowest + EDGE * (highest - lowest) else UNKNOWN
