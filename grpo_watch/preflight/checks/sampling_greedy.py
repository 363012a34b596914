"""Sampling is effectively greedy: all completions of a prompt are the same, and no group has a spread."""

from __future__ import annotations

from collections.abc import Iterator

from grpo_watch.engine.records import Severity
from grpo_watch.frameworks.launches import LaunchSettings
from grpo_watch.preflight.findings import LaunchProblem

NAME = "sampling-greedy"
COLD = 0.05
"""Temperature: a logit 1 below the best then has a chance of exp(-20); near-greedy runs were seen at 0.01."""
NARROW = 0.05
"""top_p: only the top 5 % of the probability mass is sampled, nearly always one token."""


def judge(settings: LaunchSettings) -> Iterator[LaunchProblem]:
    """One problem per sampling setting that leaves a single choice. top_k 0 or -1 is off."""
    for what, cold in (("temperature", COLD), ("top_p", NARROW)):
        name = settings.name_of(what)
        value = settings.number(name) if name else None
        if value is not None and value <= cold:
            yield _problem(settings, name, value, "0.9 to 1.0")
    name = settings.name_of("top_k")
    if name and settings.number(name) == 1:
        yield _problem(settings, name, 1, "0 or -1 (off)")


def _problem(settings: LaunchSettings, name: str, value: float, usual: str) -> LaunchProblem:
    return LaunchProblem(
        NAME,
        Severity.CRITICAL,
        f"{settings.own_name(name)} is {value:g}: the completions of a prompt will be equal and every advantage 0",
        f"set {settings.own_name(name)} to {usual}",
        settings.where(name),
    )
