"""Errors with which frameworks refuse to start: which of them are about batches and groups, and their fixes."""

from __future__ import annotations

from typing import NamedTuple

from grpo_watch import lazy_re as re


class RefusedBatch(NamedTuple):
    """A kind of refusal: the pattern of its text, and its fix (empty: the rule's own hint)."""

    pattern: re.Pattern[str]
    fix: str = ""


GROUP_OF_ONE = re.compile(
    r"at least 2 generations per prompt|num_generations must be greater than 1|generations per prompt \(1\)"
)
"""TRL 0.15 to 1.16 and ms-swift 3.1 to 4.6 (ms-swift #3980)."""
BATCH = (
    RefusedBatch(
        re.compile("only support equal chunk"),
        "Make data.train_batch_size x rollout.n (and data.val_batch_size) a multiple of the data-parallel processes.",
    ),
    RefusedBatch(
        re.compile("larger than 0 after normalization"),
        "Raise actor_rollout_ref.actor.ppo_mini_batch_size: times rollout.n it must reach the data-parallel processes.",
    ),
    RefusedBatch(
        re.compile("can not be both configured at the same time"),
        "Set only one of generation_batch_size and steps_per_generation.",
    ),
    RefusedBatch(
        re.compile("must equal per_device_train_batch_size"),
        "Remove generation_batch_size or steps_per_generation; one follows from the other.",
    ),
    RefusedBatch(
        re.compile("divisible by.{0,40}global batch size"),
        "Make generation_batch_size a multiple of per_device_train_batch_size x the number of processes.",
    ),
    RefusedBatch(re.compile("divisible by|multiple of `?num_generations")),
    RefusedBatch(
        re.compile(
            r"^(?:ValueError|AssertionError): .{0,200}(?:batch[ _]?size|num_generations|n_samples|micro_batch|"
            r"mini_batch|group_size|rollout[._]n\b).{0,200}(?:must|should|needs? to|has to|expected|too small)",
            re.MULTILINE,
        )
    ),
)
"""TRL 0.15 to 1.16, ms-swift 3.1 to 4.6 and verl (whose workers split batches evenly); last, the words in which any
framework may refuse a batch or group setting."""
OTHER = re.compile(
    r"steps_per_generation must be > 0|max_steps must be set to a positive value|At most one of fp16 and bf16"
)
"""Refusals of other settings: the job ends, and only ``run-crashed`` reports them."""


def of_batch(text: str) -> RefusedBatch | None:
    """Which kind of batch refusal the text is, or None."""
    return next((each for each in BATCH if each.pattern.search(text)), None)


def refused(text: str) -> bool:
    """Whether a framework refused its settings with this text."""
    return bool(GROUP_OF_ONE.search(text) or of_batch(text) or OTHER.search(text))
