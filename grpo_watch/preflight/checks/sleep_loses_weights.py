"""vLLM's sleep mode discards the trained weights in this version, so rollouts come from old ones."""

from __future__ import annotations

from collections.abc import Iterator

from grpo_watch.engine.records import Severity
from grpo_watch.frameworks.launch_batch import OnTrainer, rules_of
from grpo_watch.frameworks.launches import LaunchSettings
from grpo_watch.preflight.findings import LaunchProblem

NAME = "sleep-loses-weights"


def judge(settings: LaunchSettings) -> Iterator[LaunchProblem]:
    """One problem in the versions that put vLLM to sleep so deep that it drops the weights."""
    rules = rules_of(settings)
    found = rules.drops_slept_weights(settings) if isinstance(rules, OnTrainer) else None
    if found is not None:
        name, hint = found
        what = f"{settings.framework} {settings.version} puts vLLM to sleep at level 2, which drops the synced weights"
        yield LaunchProblem(NAME, Severity.CRITICAL, what, hint, settings.where(name))
