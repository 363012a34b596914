"""prime-rl: from its settings to the rules that they break and to its number of steps."""

from __future__ import annotations

from collections.abc import Iterator

from grpo_watch.frameworks.launch_rules import BrokenConstraint, OwnArithmetic, Prediction, prompt_batches
from grpo_watch.frameworks.launches import LaunchSettings

WHEN = "when the configuration is validated"
SAMPLES, TOKENS, GROUP = "orchestrator.batch_size", "orchestrator.token_batch_size", "orchestrator.group_size"
MOST = "max_steps"
USUAL = 128
"""Samples of a step where neither they nor tokens are set."""


def _broken(settings: LaunchSettings) -> Iterator[BrokenConstraint]:
    samples, tokens, group = settings.whole(SAMPLES), settings.whole(TOKENS), settings.product(GROUP)
    if samples and tokens:
        text = "Set exactly one of batch_size or token_batch_size"
        yield BrokenConstraint(text, WHEN, f"leave out {TOKENS}", (TOKENS, SAMPLES))
    elif not tokens and (samples or USUAL) % group:
        text = "Batch size must be divisible by the number of samples per problem"
        yield BrokenConstraint(text, WHEN, f"make {SAMPLES} a multiple of {group}", (SAMPLES, GROUP))


def _run(settings: LaunchSettings) -> Prediction | None:
    """One optimizer step per batch, until max_steps."""
    if settings.given(TOKENS) is not None:
        return None
    group, samples = settings.product(GROUP), settings.whole(SAMPLES) or USUAL
    return prompt_batches(settings, samples // group, group, 1, None, settings.whole(MOST))


LAUNCHES = {"prime-rl": OwnArithmetic(_broken, _run, counts=(SAMPLES, TOKENS, GROUP, MOST))}
